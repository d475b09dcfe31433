/* inspect_check.c - see inspect_check.h.
 *
 * Tensors are read in runs of whole blocks with plain reads (no mapping: a failing disk is an error here, not zeros). In every
 * block format only the scale can make a weight infinite or NaN, so the scales are looked at, and a block with a suspicious one
 * is decoded to be sure. (Tried: decoding every block, 59 s of one core for a file of 6.5 GB; this way 4 s, most of it
 * reading.) Bytes outside tensors are read too. */
#include "runtime/app/inspect_check.h"

#include "io/gguf/gguf.h"
#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"
#include "platform/os.h"
#include "runtime/app/block_scale.h"
#include "runtime/app/model.h"
#include "runtime/app/progress.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK = 1 << 20, SLACK = 64 };

struct checker {
    const struct gguf *g;
    struct kern_table kernels;
    struct os_file **files; /* one a part */
    uint8_t *bytes;         /* BLOCK + SLACK */
    struct progress progress;
    uint64_t done, total;
};

static enum mc_code read_block(struct checker *c, size_t part, uint64_t off, size_t size, struct mc_err *err)
{
    enum mc_code code = os_file_read_at(c->files[part], off, c->bytes, size, err);
    if (!code) code = check_interrupt(err);
    c->done += size;
    progress_update(&c->progress, c->done, c->total);
    return code;
}

static bool f16_broken(uint16_t h)
{
    return (h & 0x7C00) == 0x7C00; /* infinity or NaN */
}

/* May a weight of this block be no finite number? False is certain. */
static bool suspicious(struct block_scale scale, const uint8_t *block)
{
    const uint8_t *p = block + scale.at;
    switch (scale.form) {
    case SCALE_NONE:
        return true;
    case SCALE_F16:
        return f16_broken(mc_load_u16(p));
    case SCALE_F16_MIN:
        return f16_broken(mc_load_u16(p)) || f16_broken(mc_load_u16(p + 2));
    case SCALE_IQ1_M:
        return f16_broken((uint16_t)((p[5] >> 4) << 8 | (p[7] >> 4) << 12));
    case SCALE_E8M0:
        return p[0] >= 250;
    case SCALE_E4M3:
        return false; /* every pattern is a number */
    }
    return true;
}

/* Integer arithmetic: never folded away, whatever the compiler thinks of infinities. */
static bool all_finite(const float *w, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &w[i], 4);
        u &= 0x7F800000u;
        worst = u > worst ? u : worst;
    }
    return worst != 0x7F800000u;
}

/* The blocks in c->bytes; `first` is the number of the first one in the tensor. Formats without blocks are taken 256 weights at
 * a time. */
static enum mc_code check_blocks(struct checker *c, const struct gguf_tensor *t, uint64_t first, size_t n_blocks,
                                 struct mc_err *err)
{
    const struct quant_info *q = quant_info(t->type);
    const struct block_scale scale = block_scale_of(t->type);
    const size_t step = scale.form == SCALE_NONE ? 256 : 1;
    for (size_t i = 0; i < n_blocks; i += step) {
        const uint8_t *block = c->bytes + i * q->block_bytes;
        if (!suspicious(scale, block)) continue;
        const size_t n = (n_blocks - i < step ? n_blocks - i : step) * q->block_len;
        float w[256];
        c->kernels.dequantize[t->type](w, block, n);
        if (all_finite(w, n)) continue;
        const uint64_t row = (first + i) * q->block_len / t->ne[0];
        return mc_fail(err, MC_EFORMAT, 0,
                       "tensor %.*s: a weight at or near row %" PRIu64 " is no finite number: the file is damaged",
                       (int)(t->name.size < 100 ? t->name.size : 100), (const char *)t->name.data, row);
    }
    return MC_OK;
}

static enum mc_code check_tensor(struct checker *c, const struct gguf_tensor *t, struct mc_err *err)
{
    const struct quant_info *q = quant_info(t->type);
    const size_t step = BLOCK / q->block_bytes * (size_t)q->block_bytes;
    for (uint64_t off = 0; off < t->size_bytes; off += step) {
        const size_t size = t->size_bytes - off < step ? (size_t)(t->size_bytes - off) : step;
        enum mc_code code = read_block(c, t->part, t->file_off + off, size, err);
        if (!code && t->type != QUANT_I32) code = check_blocks(c, t, off / q->block_bytes, size / q->block_bytes, err);
        if (code) return code;
    }
    return MC_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;
    return x->part != y->part ? (x->part > y->part) - (x->part < y->part)
                              : (x->file_off > y->file_off) - (x->file_off < y->file_off);
}

/* Header, metadata and padding: whatever lies in [from, to) of a part. */
static enum mc_code read_gap(struct checker *c, size_t part, uint64_t from, uint64_t to, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    while (from < to && !code) {
        const size_t size = to - from < BLOCK ? (size_t)(to - from) : BLOCK;
        code = read_block(c, part, from, size, err);
        from += size;
    }
    return code;
}

static enum mc_code check_all(struct checker *c, const struct gguf_tensor **sorted, struct mc_err *err)
{
    const size_t n = gguf_n_tensors(c->g);
    for (size_t i = 0; i < n; i++) sorted[i] = gguf_tensor_at(c->g, i);
    if (n) qsort(sorted, n, sizeof *sorted, by_offset);
    size_t at = 0;
    for (size_t part = 0; part < gguf_n_parts(c->g); part++) {
        uint64_t pos = 0;
        for (; at < n && sorted[at]->part == part; at++) {
            enum mc_code code = read_gap(c, part, pos, sorted[at]->file_off, err);
            if (!code) code = check_tensor(c, sorted[at], err);
            if (code) return code;
            pos = sorted[at]->file_off + sorted[at]->size_bytes;
        }
        const enum mc_code code = read_gap(c, part, pos, gguf_part_size(c->g, part), err);
        if (code) return code;
    }
    return MC_OK;
}

enum mc_code inspect_check(const struct gguf *g, bool quiet, struct mc_err *err)
{
    const size_t n_parts = gguf_n_parts(g);
    struct checker c = {.g = g, .files = calloc(n_parts, sizeof *c.files), .bytes = malloc(BLOCK + SLACK)};
    const struct gguf_tensor **sorted = calloc(gguf_n_tensors(g) + 1, sizeof *sorted);
    enum mc_code code = MC_OK;
    if (!c.files || !c.bytes || !sorted) code = mc_fail(err, MC_ENOMEM, 0, "no memory for the check");
    for (size_t i = 0; i < n_parts && !code; i++) {
        code = gguf_part_file(g, i, &c.files[i], err);
        c.total += gguf_part_size(g, i);
    }
    kern_table_init(&c.kernels, kern_cpu_flags());
    progress_begin(&c.progress, "check", "MB", 1e6, quiet);
    if (!code) code = check_all(&c, sorted, err);
    progress_end(&c.progress);
    for (size_t i = 0; c.files && i < n_parts; i++) os_file_close(c.files[i]);
    free(sorted);
    free(c.bytes);
    free(c.files);
    return code;
}
