/* check_quantize.c - activation rows and decoded weights, byte for byte. */
#include "kernels/check/ck.h"

static void check_quantize_row(struct ck *k, enum quant_act act, size_t n, size_t cut, enum ck_pattern p)
{
    const size_t bytes = kern_act_row_bytes(act, n);
    ck_case(k, "n %zu cut at %zu, pattern %s", n, cut, ck_pattern_name(p));
    const float *x = ck_floats(k, n, p);
    void *want = ck_output_aligned(k, bytes), *got = ck_output_aligned(k, bytes);
    k->ref->quantize[act](want, x, n, 0, n);
    k->t->quantize[act](got, x, n, cut, n); /* parts in any order give the same row */
    k->t->quantize[act](got, x, n, 0, cut);
    ck_same_bytes(k, want, got, bytes, "row");
}

void check_quantize(struct ck *k, unsigned act, struct ck_numbers *out)
{
    static const size_t blocks[] = {1, 2, 3, 4, 5, 8, 11};
    const size_t step = act == QUANT_ACT_Q8_K ? 256 : 32;
    for (size_t i = 0; k->t != k->ref && i < ARRAY_LEN(blocks); i++)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (size_t cut = 0; cut <= blocks[i] && ck_ok(k); cut += blocks[i] > 4 ? 3 : 1)
                check_quantize_row(k, act, blocks[i] * step, cut * step, p);
    if (!ck_ok(k)) return;
    ck_case(k, "n 4096");
    const float *x = ck_floats(k, 4096, CK_RANDOM);
    void *row = ck_output_aligned(k, kern_act_row_bytes(act, 4096));
    CK_BENCH(k) k->t->quantize[act](row, x, 4096, 0, 4096);
    *out = (struct ck_numbers){k->timer.best_ns, 4096, (double)(4096 * 4 + kern_act_row_bytes(act, 4096)), 0};
}

static void check_dequantize_row(struct ck *k, enum quant_type type, size_t n, enum ck_weights p)
{
    ck_case(k, "n %zu, weights %u", n, (unsigned)p);
    const void *w = ck_blocks(k, type, n, 1, 0, p);
    float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
    k->ref->dequantize[type](want, w, n);
    k->t->dequantize[type](got, w, n);
    ck_same_floats(k, want, got, n, "weights");
}

void check_dequantize(struct ck *k, unsigned type, struct ck_numbers *out)
{
    const struct quant_info *info = quant_info(type);
    for (size_t blocks = 1; k->t != k->ref && blocks <= 40; blocks += blocks < 20 ? 1 : 7)
        for (enum ck_weights p = 0; p < CK_WEIGHTS && ck_ok(k); p++) check_dequantize_row(k, type, blocks * info->block_len, p);
    if (!ck_ok(k)) return;
    ck_case(k, "n 4096");
    const void *w = ck_blocks(k, type, 4096, 1, 0, CK_W_RANDOM);
    float *x = ck_output(k, 4 * 4096);
    CK_BENCH(k) k->t->dequantize[type](x, w, 4096);
    *out = (struct ck_numbers){k->timer.best_ns, 4096, (double)quant_row_bytes(info, 4096) + 4 * 4096, 0};
}
