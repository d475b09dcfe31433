/* check_pack.c - matrices into their packed form, byte for byte. The rows end at the fence: nothing may be read behind them. */
#include "kernels/check/ck.h"

#include "kernels/pack.h"

static void check_group(struct ck *k, enum quant_type type, size_t n, size_t gap, enum ck_weights p)
{
    const size_t row_bytes = quant_row_bytes(quant_info(type), n), stride = row_bytes + gap;
    const size_t bytes = kern_pack_group_bytes(type, n);
    ck_case(k, "k %zu, row gap %zu, weights %u", n, gap, (unsigned)p);
    uint8_t *w = ck_input(k, (KERN_PACK_ROWS - 1) * stride + row_bytes, 0);
    for (size_t r = 0; r < KERN_PACK_ROWS; r++) ck_fill_blocks(k, type, w + r * stride, n / quant_info(type)->block_len, p);
    uint8_t *want = ck_output_aligned(k, bytes), *got = ck_output_aligned(k, bytes);
    k->ref->pack[type](want, w, stride, n);
    k->t->pack[type](got, w, stride, n);
    ck_same_bytes(k, want, got, bytes, "group");
}

void check_pack(struct ck *k, unsigned type, struct ck_numbers *out)
{
    enum { N = 4096 };
    const struct quant_info *const info = quant_info(type);
    for (size_t blocks = 1; k->t != k->ref && blocks <= 40; blocks += blocks < 7 ? 1 : 11)
        for (enum ck_weights p = 0; p < CK_WEIGHTS && ck_ok(k); p++)
            check_group(k, (enum quant_type)type, blocks * info->block_len, blocks % 3 == 2 ? 13 : 0, p);
    if (!ck_ok(k)) return;
    ck_case(k, "k %u", (unsigned)N);
    const size_t stride = quant_row_bytes(info, N);
    const void *w = ck_blocks(k, (enum quant_type)type, N, KERN_PACK_ROWS, stride, CK_W_RANDOM);
    void *group = ck_output_aligned(k, kern_pack_group_bytes((enum quant_type)type, N));
    CK_BENCH(k) k->t->pack[type](group, w, stride, N);
    out->ns = k->timer.best_ns;
    out->weights = KERN_PACK_ROWS * N;
    out->bytes = (double)(KERN_PACK_ROWS * stride);
}
