/* kl_file.c - see kl_file.h. */
#include "runtime/app/kl_file.h"

#include "platform/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { HEADER_BYTES = 40, VERSION = 1, N_FIELDS = 6 };
static const char magic[8] = {'M', 'C', 'L', 'O', 'G', 'I', 'T', 'S'};

struct kl_writer {
    struct os_writer *out;
    uint32_t n_vocab;
    uint8_t row[];
};

struct kl_reader {
    struct os_file *file;
    uint32_t n_vocab;
    uint64_t off;
    float row[];
};

static void make_header(uint8_t h[HEADER_BYTES], const struct kl_layout *l)
{
    const uint32_t fields[N_FIELDS] = {VERSION, l->n_vocab, l->chunk, l->stride, l->n_windows, l->n_scored};
    memcpy(h, magic, sizeof magic);
    for (size_t i = 0; i < N_FIELDS; i++) mc_store_u32(h + 8 + 4 * i, fields[i]);
    mc_store_u64(h + 32, l->ids_hash);
}

enum mc_code kl_writer_create(const char *path, const struct kl_layout *l, struct kl_writer **out, struct mc_err *err)
{
    struct kl_writer *w = malloc(sizeof *w + 4 * (size_t)l->n_vocab);
    if (!w) return mc_fail(err, MC_ENOMEM, 0, "no memory for a row of logits");
    w->n_vocab = l->n_vocab;
    enum mc_code code = os_writer_create(path, &w->out, err);
    if (code) {
        free(w);
        return code;
    }
    uint8_t h[HEADER_BYTES];
    make_header(h, l);
    code = os_writer_write(w->out, h, sizeof h, err);
    if (code)
        kl_writer_abort(w);
    else
        *out = w;
    return code;
}

enum mc_code kl_writer_add(struct kl_writer *w, const float *logits, struct mc_err *err)
{
    for (uint32_t i = 0; i < w->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], 4);
        mc_store_u32(w->row + 4 * (size_t)i, bits);
    }
    return os_writer_write(w->out, w->row, 4 * (size_t)w->n_vocab, err);
}

enum mc_code kl_writer_finish(struct kl_writer *w, struct mc_err *err)
{
    if (!w) return MC_OK;
    const enum mc_code code = os_writer_finish(w->out, err);
    free(w);
    return code;
}

void kl_writer_abort(struct kl_writer *w)
{
    if (!w) return;
    os_writer_abort(w->out);
    free(w);
}

static enum mc_code check_header(const char *path, uint64_t file_bytes, const uint8_t h[HEADER_BYTES],
                                 const struct kl_layout *want, struct mc_err *err)
{
    static const char *const names[N_FIELDS] = {
        "format version",           "vocabulary", "window (--chunk)", "stride (--stride)", "number of windows (--chunks)",
        "scored positions a window"};
    uint8_t expected[HEADER_BYTES];
    make_header(expected, want);
    if (memcmp(h, magic, sizeof magic)) return mc_fail(err, MC_EARG, 0, "%s: no logits kept by ppl --kl-save", path);
    for (size_t i = 0; i < N_FIELDS; i++) {
        const uint32_t has = mc_load_u32(h + 8 + 4 * i), need = mc_load_u32(expected + 8 + 4 * i);
        if (has != need)
            return mc_fail(err, MC_EARG, 0, "%s: %s is %" PRIu32 " there and %" PRIu32 " here", path, names[i], has, need);
    }
    if (mc_load_u64(h + 32) != want->ids_hash) return mc_fail(err, MC_EARG, 0, "%s: kept from another text or tokenizer", path);
    const uint64_t bytes = HEADER_BYTES + 4 * (uint64_t)want->n_vocab * want->n_windows * want->n_scored;
    if (file_bytes != bytes)
        return mc_fail(err, MC_EARG, 0, "%s: %" PRIu64 " bytes, expected %" PRIu64 ": the file is damaged", path, file_bytes,
                       bytes);
    return MC_OK;
}

enum mc_code kl_reader_open(const char *path, const struct kl_layout *want, struct kl_reader **out, struct mc_err *err)
{
    struct os_file *f;
    enum mc_code code = os_file_open(path, &f, err);
    if (code) return code;
    uint8_t h[HEADER_BYTES] = {0};
    if (os_file_size(f) >= HEADER_BYTES) code = os_file_read_at(f, 0, h, sizeof h, err);
    if (!code) code = check_header(path, os_file_size(f), h, want, err);
    struct kl_reader *r = code ? NULL : malloc(sizeof *r + 4 * (size_t)want->n_vocab);
    if (!code && !r) code = mc_fail(err, MC_ENOMEM, 0, "no memory for a row of logits");
    if (code) {
        os_file_close(f);
        return code;
    }
    r->file = f;
    r->n_vocab = want->n_vocab;
    r->off = HEADER_BYTES;
    *out = r;
    return MC_OK;
}

enum mc_code kl_reader_next(struct kl_reader *r, const float **logits, struct mc_err *err)
{
    const enum mc_code code = os_file_read_at(r->file, r->off, r->row, 4 * (size_t)r->n_vocab, err);
    if (code) return code;
    r->off += 4 * (uint64_t)r->n_vocab;
    for (uint32_t i = 0; i < r->n_vocab; i++) {
        r->row[i] = mc_load_f32(&r->row[i]);
        if (!isfinite(r->row[i])) return mc_fail(err, MC_EARG, 0, "%s: a value that is no number", os_file_path(r->file));
    }
    *logits = r->row;
    return MC_OK;
}

void kl_reader_close(struct kl_reader *r)
{
    if (!r) return;
    os_file_close(r->file);
    free(r);
}
