/* gguf_hash.c - see gguf_hash.h */
#include "io/gguf/gguf_hash.h"

#include "platform/base/hash.h"
#include "platform/os.h"

#include <inttypes.h>
#include <stdio.h>

enum { SAMPLES = 64, SAMPLE_BYTES = 4096, FOLDER_CAP = 1100 };

static enum mc_code hash_part(const struct gguf *g, size_t part, uint64_t *hash, struct mc_err *err)
{
    struct os_file *f;
    uint8_t bytes[SAMPLE_BYTES];
    enum mc_code code = gguf_part_file(g, part, &f, err);
    if (code) return code;
    const uint64_t size = os_file_size(f), n = size < SAMPLE_BYTES ? size : SAMPLE_BYTES;
    *hash = mc_hash64(&size, sizeof size, *hash);
    for (uint64_t i = 0; i < SAMPLES && !code; i++) {
        code = os_file_read_at(f, (size - n) * i / (SAMPLES - 1), bytes, (size_t)n, err);
        if (!code) *hash = mc_hash64(bytes, (size_t)n, *hash);
    }
    os_file_close(f);
    return code;
}

enum mc_code gguf_content_hash(const struct gguf *g, uint64_t *hash, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    *hash = 0;
    for (size_t i = 0; i < gguf_n_parts(g) && !code; i++) code = hash_part(g, i, hash, err);
    return code;
}

enum mc_code gguf_kept_path(const struct gguf *g, const char *name, const char *ending, char *buf, size_t cap,
                            struct mc_err *err)
{
    char folder[FOLDER_CAP];
    uint64_t hash = 0;
    enum mc_code code = os_cache_folder(folder, sizeof folder, err);
    if (!code) code = gguf_content_hash(g, &hash, err);
    if (code) return code;
    const int n = snprintf(buf, cap, "%s/%s-%016" PRIx64 ".%s", folder, name, hash, ending);
    return n > 0 && (size_t)n < cap ? MC_OK
                                    : mc_fail(err, MC_EIO, 0, "%s: too long a path for what is kept of a model", folder);
}
