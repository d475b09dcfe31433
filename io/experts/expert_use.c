/* expert_use.c - see expert_use.h */
#include "io/experts/expert_use.h"

#include "platform/base/hash.h"
#include "platform/os.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD = 32, VERSION = 1 };
static const char magic[8] = {'M', 'C', 'E', 'X', 'P', 'U', 'S', 'E'};

enum mc_code expert_use_load(const char *path, uint32_t n_layers, uint32_t n_expert, float *use, struct mc_err *err)
{
    const size_t n = (size_t)n_layers * n_expert, want = HEAD + 4 * n;
    char *text;
    size_t size;
    const enum mc_code code = os_file_read_all(path, want + 1, &text, &size, err);
    if (code) return code;
    const uint8_t *const p = (const uint8_t *)text;
    const char *wrong = NULL;
    if (size < HEAD || memcmp(p, magic, sizeof magic))
        wrong = "it is no such file";
    else if (mc_load_u32(p + 8) != VERSION)
        wrong = "it is of another version";
    else if (mc_load_u32(p + 12) != n_layers || mc_load_u32(p + 16) != n_expert || size != want)
        wrong = "it is of another model";
    else if (mc_hash64(p + HEAD, 4 * n, 0) != mc_load_u64(p + 24))
        wrong = "it is damaged";
    for (size_t i = 0; i < n && !wrong; i++) {
        const uint32_t bits = mc_load_u32(p + HEAD + 4 * i);
        memcpy(&use[i], &bits, 4);
        if (!isfinite(use[i]) || use[i] < 0) wrong = "it holds what is no number of uses";
    }
    free(text);
    return wrong ? mc_fail(err, MC_EFORMAT, 0, "%s: %s", path, wrong) : MC_OK;
}

enum mc_code expert_use_save(const char *path, uint32_t n_layers, uint32_t n_expert, const float *use, struct mc_err *err)
{
    const size_t n = (size_t)n_layers * n_expert, size = HEAD + 4 * n;
    struct os_writer *w;
    uint8_t *const p = calloc(1, size);
    if (!p) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write it", path);
    memcpy(p, magic, sizeof magic);
    mc_store_u32(p + 8, VERSION);
    mc_store_u32(p + 12, n_layers);
    mc_store_u32(p + 16, n_expert);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &use[i], 4);
        mc_store_u32(p + HEAD + 4 * i, bits);
    }
    mc_store_u64(p + 24, mc_hash64(p + HEAD, 4 * n, 0));
    enum mc_code code = os_writer_create(path, &w, err);
    if (!code) {
        code = os_writer_write(w, p, size, err);
        if (!code)
            code = os_writer_finish(w, err);
        else
            os_writer_abort(w);
    }
    free(p);
    return code;
}
