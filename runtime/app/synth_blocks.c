/* synth_blocks.c - random valid blocks of every weight format. See synth.h.
 *
 * Nearly every bit pattern is a valid block; what must be set by hand is the scale (at `scale_at`, in one of four forms), and
 * in some formats the sub-scales or codes, so that the weights have mean 0. How wide they then spread is not worked out on
 * paper: a few thousand weights at scale 1 are decoded by the kernels and measured. */
#include "runtime/app/synth.h"

#include "platform/base/hash.h"
#include "runtime/app/block_scale.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_WEIGHTS = 16384 };

/* Where a format stores a minimum: what part of the scale makes the weights have mean 0. */
static float min_factor(enum quant_type type)
{
    return type == QUANT_Q4_1 ? -7.5f : type == QUANT_Q5_1 ? -15.5f : 1;
}

/* The codes are not symmetric and there is no minimum: half of the blocks get a negative scale. */
static bool wants_random_sign(enum quant_type type)
{
    return type == QUANT_Q4_0 || type == QUANT_Q5_0 || type == QUANT_IQ4_NL;
}

void synth_random_init(struct synth_random *r, uint64_t seed, const char *name)
{
    r->state = mc_hash64(name, strlen(name), seed) | 1; /* xorshift must not start at 0 */
}

uint64_t synth_random_next(struct synth_random *r)
{
    uint64_t x = r->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    r->state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* ---- sub-scales and codes --------------------------------------------------------------------------------------------- */

/* 2-bit codes with probabilities 3/8 3/8 1/8 1/8: code - 1 has mean 0. n bytes, a multiple of 8. */
static void fill_skewed(struct synth_random *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t low = synth_random_next(r), high = synth_random_next(r) & synth_random_next(r);
        mc_store_u64(p + i, (low & UINT64_C(0x5555555555555555)) | (high & UINT64_C(0xAAAAAAAAAAAAAAAA)));
    }
}

/* The caller has filled the blocks with random bytes, which the analyser does not follow.
 * NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult) */

/* Codes 0, 1, 2 with probabilities 1/4 1/2 1/4: a code 3 becomes 1. */
static void make_ternary(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(p[i] & ~((p[i] << 1) & p[i] & 0xAA));
}

/* Eight 6-bit scales and minima in the 12 bytes of q4_K and q5_K; the minimum is half the largest code times the scale, so that
 * the weights have mean 0. */
static void make_scales_k45(uint8_t *p, enum quant_type type)
{
    uint8_t sc[8], mn[8];
    for (int i = 0; i < 8; i++) {
        sc[i] = (uint8_t)(type == QUANT_Q4_K ? 4 + 2 * (p[i] % 3) : 2 + 2 * (p[i] % 2));
        mn[i] = (uint8_t)(type == QUANT_Q4_K ? sc[i] * 15 / 2 : sc[i] * 31 / 2);
    }
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)((sc[i] & 63) | (sc[4 + i] >> 4) << 6);
        p[4 + i] = (uint8_t)((mn[i] & 63) | (mn[4 + i] >> 4) << 6);
        p[8 + i] = (uint8_t)((sc[4 + i] & 15) | (mn[4 + i] & 15) << 4);
    }
}

static void adjust_block(enum quant_type type, struct synth_random *r, uint8_t *p)
{
    switch (type) {
    case QUANT_Q8_0: /* -128 does not occur in real files */
        for (int i = 2; i < 34; i++) p[i] = p[i] == 128 ? 0 : p[i];
        break;
    case QUANT_Q2_0:
        fill_skewed(r, p + 2, 16);
        break;
    case QUANT_TQ2_0:
        make_ternary(p, 64);
        break;
    case QUANT_Q2_K: /* scale 2k, minimum 3k, k = 1..5: codes 0..3 times 2 minus 3 */
        for (int i = 0; i < 16; i++) p[i] = (uint8_t)((1 + p[i] % 5) * (2 | 3 << 4));
        break;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        make_scales_k45(p + 4, type);
        break;
    case QUANT_Q6_K: /* 2..64 or their negatives: no scale is near 0 */
        for (int i = 192; i < 208; i++) p[i] = (uint8_t)(p[i] & 1 ? 255 - (p[i] & 62) : 2 + (p[i] & 62));
        break;
    default:
        break;
    }
}
/* NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult) */

/* ---- scales ----------------------------------------------------------------------------------------------------------- */

static float e4m3_value(uint8_t b)
{
    const int e = b >> 3, m = b & 7;
    return e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
}

/* The scale without sign that comes nearest; 0x7F is NaN. */
static uint8_t e4m3_nearest(double scale)
{
    uint8_t best = 1;
    for (uint8_t b = 2; b < 0x7F; b++)
        if (fabs((double)e4m3_value(b) - scale) < fabs((double)e4m3_value(best) - scale)) best = b;
    return best;
}

/* The bytes that stand for a scale, made once for a run of blocks. */
struct scale_bytes {
    struct block_scale place;
    bool random_sign;
    uint16_t d, min;
    uint8_t exponent, e4m3;
};

static struct scale_bytes encode_scale(enum quant_type type, double scale)
{
    struct scale_bytes s = {.place = block_scale_of(type), .random_sign = wants_random_sign(type)};
    s.d = kern_f32_to_f16((float)scale);
    s.min = kern_f32_to_f16((float)scale * min_factor(type));
    const int e = 127 + (int)lround(log2(scale));
    s.exponent = (uint8_t)(e < 1 ? 1 : e > 250 ? 250 : e);
    s.e4m3 = type == QUANT_NVFP4 ? e4m3_nearest(scale) : 0;
    return s;
}

static void put_scale(const struct scale_bytes *s, uint8_t *block)
{
    uint8_t *p = block + s->place.at;
    switch (s->place.form) {
    case SCALE_NONE:
        break;
    case SCALE_F16: /* the sign follows a random bit of the codes */
        mc_store_u16(p, s->random_sign ? (uint16_t)(s->d | (p[2] & 1) << 15) : s->d);
        break;
    case SCALE_F16_MIN:
        mc_store_u16(p, s->d);
        mc_store_u16(p + 2, s->min);
        break;
    case SCALE_IQ1_M:
        for (int i = 0; i < 4; i++) p[2 * i + 1] = (uint8_t)((p[2 * i + 1] & 0x0F) | (s->d >> (4 * i) & 15) << 4);
        break;
    case SCALE_E8M0:
        *p = s->exponent;
        break;
    case SCALE_E4M3:
        memset(p, s->e4m3, 4);
        break;
    }
}

/* ---- public ----------------------------------------------------------------------------------------------------------- */

/* Sum of four uniform numbers: bell shaped, cut at 3.5 standard deviations, one random word a value. */
static float bell(struct synth_random *r, float std, float mean)
{
    const uint64_t x = synth_random_next(r);
    const int32_t sum = (int32_t)(x & 0xFFFF) + (int32_t)(x >> 16 & 0xFFFF) + (int32_t)(x >> 32 & 0xFFFF) + (int32_t)(x >> 48);
    return ((float)sum - 131070.0f) * (std / 37837.2f) + mean;
}

static void fill_floats(const struct synth_filler *f, struct synth_random *r, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float v = bell(r, f->std, f->mean);
        uint32_t bits;
        memcpy(&bits, &v, 4);
        if (f->type == QUANT_F32)
            mc_store_u32(dst + 4 * i, bits);
        else
            mc_store_u16(dst + 2 * i,
                         f->type == QUANT_F16 ? kern_f32_to_f16(v) : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
    }
}

void synth_fill(const struct synth_filler *f, struct synth_random *r, uint8_t *dst, size_t n_blocks)
{
    if (f->type == QUANT_F32 || f->type == QUANT_F16 || f->type == QUANT_BF16) {
        fill_floats(f, r, dst, n_blocks);
        return;
    }
    const size_t block_bytes = quant_info(f->type)->block_bytes, size = n_blocks * block_bytes;
    for (size_t i = 0; i < size; i += 8) mc_store_u64(dst + i, synth_random_next(r));
    const struct scale_bytes s = encode_scale(f->type, f->scale);
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *block = dst + i * block_bytes;
        adjust_block(f->type, r, block);
        put_scale(&s, block);
    }
}

enum mc_code synth_filler_init(struct synth_filler *f, const struct kern_table *kernels, enum quant_type type, float std,
                               float mean, struct mc_err *err)
{
    const struct quant_info *q = quant_info(type);
    *f = (struct synth_filler){type, std, mean, 1};
    if (type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16) return MC_OK;
    if (!q || type == QUANT_I32) return mc_fail(err, MC_EUNSUPPORTED, 0, "no random weights of type %s", q ? q->name : "?");
    const size_t n_blocks = SAMPLE_WEIGHTS / q->block_len;
    uint8_t *blocks = malloc(n_blocks * q->block_bytes + 64); /* kernels read a little beyond */
    float *w = malloc(SAMPLE_WEIGHTS * sizeof *w);
    if (blocks && w) {
        struct synth_random r;
        synth_random_init(&r, 12345, q->name);
        synth_fill(f, &r, blocks, n_blocks);
        kernels->dequantize[type](w, blocks, SAMPLE_WEIGHTS);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < SAMPLE_WEIGHTS; i++) sum += (double)w[i], squares += (double)w[i] * (double)w[i];
        const double average = sum / SAMPLE_WEIGHTS;
        f->scale = (double)std / sqrt(squares / SAMPLE_WEIGHTS - average * average);
    }
    const bool ok = blocks && w;
    free(blocks);
    free(w);
    return ok ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "no memory for sample blocks");
}
