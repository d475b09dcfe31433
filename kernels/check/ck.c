/* ck.c - fenced memory, patterns, comparison and clock of the checks. See ck.h. */
#include "kernels/check/ck.h"

#include "kernels/f16.h"
#include "kernels/quant/blocks.h"
#include "platform/os.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum { CANARY = 0xC3, MARGIN = 64 };

/* ---- cases and complaints ---- */

void ck_case(struct ck *k, const char *fmt, ...)
{
    va_list args;
    k->slots_used = 0;
    va_start(args, fmt);
    vsnprintf(k->where, sizeof k->where, fmt, args);
    va_end(args);
}

void ck_fail(struct ck *k, const char *fmt, ...)
{
    char what[128];
    va_list args;
    if (!ck_ok(k)) return;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(k->detail, sizeof k->detail, "%s (%s; seed %llu)", what, k->where, (unsigned long long)k->opt->seed);
}

/* ---- memory ---- */

static char *next_fence(struct ck *k)
{
    char *slot = k->pool + k->slots_used++ * k->slot_bytes;
    assert(k->slots_used <= k->pool_bytes / k->slot_bytes);
    return slot + k->slot_bytes - k->page_bytes;
}

static char *place(struct ck *k, size_t bytes, size_t alignment)
{
    char *p = next_fence(k) - bytes - (k->opt->loose ? MARGIN : 0);
    assert(bytes + 4 * MARGIN < k->slot_bytes - k->page_bytes);
    return p - (uintptr_t)p % alignment;
}

static void *input(struct ck *k, size_t bytes, size_t slack, size_t alignment)
{
    char *p = place(k, bytes + slack, alignment);
    memset(p + bytes, 0xFF, slack); /* NaN, for those who use what they may only read */
    return p;
}

static void *output(struct ck *k, size_t bytes, size_t alignment)
{
    char *p = place(k, bytes + MARGIN, alignment);
    memset(p - MARGIN, CANARY, bytes + 2 * MARGIN);
    return p;
}

void *ck_input(struct ck *k, size_t bytes, size_t slack)
{
    return input(k, bytes, slack, 1);
}

void *ck_input_aligned(struct ck *k, size_t bytes, size_t slack)
{
    return input(k, bytes, slack, KERN_ALIGN);
}

void *ck_output(struct ck *k, size_t bytes)
{
    return output(k, bytes, sizeof(float));
}

void *ck_output_aligned(struct ck *k, size_t bytes)
{
    return output(k, bytes, KERN_ALIGN);
}

/* ---- numbers ---- */

uint64_t ck_random(struct ck *k) /* splitmix64 */
{
    uint64_t z = k->random += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

float ck_uniform(struct ck *k)
{
    return (float)(ck_random(k) >> 40) * 0x1p-23f - 1;
}

const char *ck_pattern_name(enum ck_pattern p)
{
    static const char *const names[CK_PATTERNS] = {"zero", "extremes", "denormals", "spike", "equal", "ties", "random"};
    return names[p];
}

void ck_fill_floats(struct ck *k, float *x, size_t n, enum ck_pattern p)
{
    static const float extremes[] = {FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN, 1e30f, -1e30f, 1, -1, 0, -0.0f, 65504, -65520};
    const size_t spike = n ? ck_random(k) % n : 0;
    const bool one_sign = ck_random(k) & 1;
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = ck_random(k);
        switch (p) {
        case CK_ZERO:
            x[i] = r & 1 ? 0 : -0.0f;
            break;
        case CK_EXTREMES:
            x[i] = extremes[r % ARRAY_LEN(extremes)];
            break;
        case CK_DENORMALS:
            x[i] = f32_of_bits((uint32_t)(r & 0x80FFFFFF));
            break; /* up to 2^-125 */
        case CK_SPIKE:
            x[i] = i == spike ? (r & 1 ? 3000.0f : -3000.0f) : ck_uniform(k) * 0.01f;
            break;
        case CK_EQUAL:
            x[i] = one_sign || r & 1 ? 1.5f : -1.5f;
            break;
        case CK_TIES:
            x[i] = i % 32 ? (float)(int)(r % 508 - 254) * 0.5f : 127;
            break;
        default:
            x[i] = (ck_uniform(k) + ck_uniform(k) + ck_uniform(k)) * 2;
            break;
        }
    }
}

float *ck_floats(struct ck *k, size_t n, enum ck_pattern p)
{
    float *x = ck_input(k, n * sizeof *x, 0);
    ck_fill_floats(k, x, n, p);
    return x;
}

/* Where a block keeps its float16 fields (0xFF: none). */
static void scale_offsets(enum quant_type type, unsigned char off[2])
{
    off[0] = 0, off[1] = 0xFF;
    switch (type) {
    case QUANT_Q4_1:
        off[1] = offsetof(struct block_q4_1, m);
        break;
    case QUANT_Q5_1:
        off[1] = offsetof(struct block_q5_1, m);
        break;
    case QUANT_Q4_K:
        off[1] = offsetof(struct block_q4_K, dmin);
        break;
    case QUANT_Q5_K:
        off[1] = offsetof(struct block_q5_K, dmin);
        break;
    case QUANT_Q2_K:
        off[0] = offsetof(struct block_q2_K, d), off[1] = offsetof(struct block_q2_K, dmin);
        break;
    case QUANT_Q3_K:
        off[0] = offsetof(struct block_q3_K, d);
        break;
    case QUANT_Q6_K:
        off[0] = offsetof(struct block_q6_K, d);
        break;
    case QUANT_TQ1_0:
        off[0] = offsetof(struct block_tq1_0, d);
        break;
    case QUANT_TQ2_0:
        off[0] = offsetof(struct block_tq2_0, d);
        break;
    case QUANT_F16:
        break;
    default: /* bytes that are no float16, or scales in pieces */
        if (type == QUANT_F32 || type == QUANT_BF16 || type == QUANT_MXFP4 || type == QUANT_NVFP4 || type == QUANT_IQ1_M)
            off[0] = 0xFF;
    }
}

static uint16_t random_scale(struct ck *k, enum ck_weights p)
{
    const uint64_t r = ck_random(k);
    if (p == CK_W_TINY_SCALES) return (uint16_t)(r & 0x83FF); /* subnormal, either sign */
    if (p == CK_W_ZERO && r % 4 == 0) return r & 16 ? 0x8000 : 0;
    return (uint16_t)((r & 0x83FF) | (6 + (r >> 32) % 10) << 10);
}

static void fill_float_weights(struct ck *k, enum quant_type type, char *w, size_t n, enum ck_weights p)
{
    const enum ck_pattern patterns[CK_WEIGHTS] = {CK_RANDOM, CK_ZERO, CK_EXTREMES, CK_SPIKE, CK_DENORMALS};
    for (size_t i = 0; i < n; i++) {
        float v;
        ck_fill_floats(k, &v, 1, patterns[p]);
        if (type == QUANT_F32)
            memcpy(w + 4 * i, &v, 4);
        else if (type == QUANT_BF16)
            mc_store_u16(w + 2 * i, (uint16_t)(f32_bits(v) >> 16));
        else
            mc_store_u16(w + 2 * i, p == CK_W_TINY_SCALES ? random_scale(k, p) : f32_to_f16(v));
    }
}

void ck_fill_blocks(struct ck *k, enum quant_type type, void *w, size_t n_blocks, enum ck_weights p)
{
    const size_t bytes = quant_info(type)->block_bytes;
    uint8_t *b = w;
    unsigned char off[2];
    if (quant_info(type)->act == QUANT_ACT_F32) {
        fill_float_weights(k, type, w, n_blocks, p);
        return;
    }
    scale_offsets(type, off);
    for (size_t i = 0; i < n_blocks; i++, b += bytes) {
        for (size_t j = 0; j < bytes; j++) {
            const uint8_t random = (uint8_t)(ck_random(k) >> 56);
            b[j] = p == CK_W_ZERO ? 0 : p == CK_W_ONES ? 0xFF : p == CK_W_TOP_BIT ? 0x80 : random;
        }
        for (unsigned j = 0; j < 2; j++)
            if (off[j] != 0xFF) mc_store_u16(b + off[j], random_scale(k, p));
        if (type == QUANT_IQ1_M) b[55] &= 0xBF; /* the top exponent bit: never infinite */
        if (type == QUANT_MXFP4) b[0] = (uint8_t)(p == CK_W_TINY_SCALES ? b[0] % 4 : 100 + b[0] % 40);
        if (type == QUANT_NVFP4 && p == CK_W_TINY_SCALES) b[0] &= 0x87, b[1] &= 7, b[2] = 0x7F, b[3] = 0xFF;
    }
}

void *ck_blocks(struct ck *k, enum quant_type type, size_t n_weights, size_t rows, size_t w_stride, enum ck_weights p)
{
    const struct quant_info *info = quant_info(type);
    const size_t used = (rows - 1) * w_stride + quant_row_bytes(info, n_weights);
    char *w = ck_input(k, used, 64);
    memset(w, 0xFF, used); /* what lies between the rows */
    for (size_t r = 0; r < rows; r++) ck_fill_blocks(k, type, w + r * w_stride, n_weights / info->block_len, p);
    return w;
}

/* ---- judgement ---- */

static bool margins_intact(struct ck *k, const void *got, size_t bytes, const char *what)
{
    const uint8_t *p = got;
    for (size_t i = 0; i < MARGIN; i++)
        if (p[bytes + i] != CANARY || *(p - MARGIN + i) != CANARY) {
            ck_fail(k, "%s: writes outside its %zu bytes", what, bytes);
            return false;
        }
    return true;
}

bool ck_same_floats(struct ck *k, const float *want, const float *got, size_t n, const char *what)
{
    if (!margins_intact(k, got, n * sizeof *got, what)) return false;
    if (!memcmp(want, got, n * sizeof *got)) return true;
    for (size_t i = 0; i < n; i++) {
        if (f32_bits(want[i]) == f32_bits(got[i]) || (isnan(want[i]) && isnan(got[i]))) continue;
        ck_fail(k, "%s[%zu] of %zu is %.9g, the twin has %.9g", what, i, n, (double)got[i], (double)want[i]);
        return false;
    }
    return true;
}

bool ck_same_bytes(struct ck *k, const void *want, const void *got, size_t bytes, const char *what)
{
    const uint8_t *a = want, *b = got;
    if (!margins_intact(k, got, bytes, what)) return false;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) {
            ck_fail(k, "byte %zu of %s (%zu) is %02x, the twin has %02x", i, what, bytes, b[i], a[i]);
            return false;
        }
    return true;
}

/* ---- clock ---- */

/* Core clock in GHz: multiplication and addition in a chain take 3 + 1 cycles on every x86-64 core of the last ten years. Best
 * of a few runs, because a run may be interrupted; volatile keeps the chain between the two looks at the clock. */
double checkkern_ghz(void)
{
    enum { STEPS = 50000 };
    volatile uint64_t number = 0x9E3779B97F4A7C15;
    double best = 0;
    for (int run = 0; run < 5; run++) {
        const uint64_t start = os_clock_ns();
        const uint64_t factor = number;
        uint64_t v = factor;
        for (int i = 0; i < STEPS; i++) v = v * factor + 0x632BE5AB;
        number = v | 1;
        const uint64_t ns = os_clock_ns() - start;
        if (ns > 0 && 4.0 * STEPS / (double)ns > best) best = 4.0 * STEPS / (double)ns;
    }
    return best > 0 ? best : 1;
}

void ck_bench_start(struct ck *k)
{
    const uint64_t ms = k->opt->bench_ms ? k->opt->bench_ms : 20;
    k->timer = (struct ck_timer){0, 0, 0, 1, 0, 0};
    if (!k->opt->bench || !ck_ok(k)) return;
    k->timer.ghz = checkkern_ghz();
    k->timer.end_ns = os_clock_ns() + ms * 1000000;
}

/* Runs in batches of at least 10 us; the best batch counts. */
bool ck_bench_next(struct ck *k)
{
    struct ck_timer *t = &k->timer;
    if (t->left > 0) {
        t->left--;
        return true;
    }
    if (t->end_ns == 0) return false;
    const uint64_t now = os_clock_ns();
    if (t->runs > 0) {
        const double ns = (double)(now - t->start_ns);
        const double each = ns / (double)t->runs;
        if (t->best_ns <= 0 || each < t->best_ns) t->best_ns = each;
        if (ns < 10000) t->runs *= 2;
        if (now >= t->end_ns) return false;
    } else {
        t->runs = 1;
    }
    t->left = t->runs - 1;
    t->start_ns = os_clock_ns();
    return true;
}
