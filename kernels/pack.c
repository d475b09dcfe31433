/* pack.c - matrices into the form of pack.h.
 *
 * The scalar decoder (ref/unpack.h) gives every block as signed values and integer scales; a table of 256 bytes turns values
 * into codes, and the code planes are written a dword (4 columns of one row) at a time. So a format is one row of `laws` here,
 * and nothing of its file layout is known twice, apart from scales that are kept as their bytes. */
#include "kernels/pack.h"

#include "kernels/ref/unpack.h"

#include <assert.h>

enum scales { NO_SCALES, BYTES, NIBBLES, ODD_NIBBLES /* (scale - 1) / 2 */ };

struct law {
    uint8_t wide, narrow;   /* bits of the planes */
    uint8_t head;           /* bytes a block */
    uint8_t scales, minima; /* enum scales */
    bool shifts; /* signs of the shift: for each 32 columns in bit 3 of the scale, for each 8 in a line of their own */
};

/* clang-format off */
static const struct law laws[QUANT_TYPE_COUNT] = {
    [QUANT_Q8_0] = {8, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_Q4_0] = {4, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_Q4_1] = {4, 0, 64, NO_SCALES, NO_SCALES, false},
    [QUANT_Q5_0] = {4, 1, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_Q5_1] = {4, 1, 64, NO_SCALES, NO_SCALES, false},
    [QUANT_IQ4_NL] = {4, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_MXFP4] = {4, 0, 16, NO_SCALES, NO_SCALES, false},
    [QUANT_NVFP4] = {4, 0, 64, NO_SCALES, NO_SCALES, false},
    [QUANT_Q2_0] = {2, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_Q1_0] = {1, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_Q2_K] = {2, 0, 64, NIBBLES, NIBBLES, false},
    [QUANT_Q3_K] = {2, 1, 32, BYTES, NO_SCALES, false},
    [QUANT_Q4_K] = {4, 0, 64, BYTES, BYTES, false},
    [QUANT_Q5_K] = {4, 1, 64, BYTES, BYTES, false},
    [QUANT_Q6_K] = {4, 2, 32, BYTES, NO_SCALES, false},
    [QUANT_IQ2_XXS] = {2, 1, 32, ODD_NIBBLES, NO_SCALES, false},
    [QUANT_IQ2_XS] = {2, 1, 32, ODD_NIBBLES, NO_SCALES, false},
    [QUANT_IQ2_S] = {2, 1, 32, ODD_NIBBLES, NO_SCALES, false},
    [QUANT_IQ3_XXS] = {4, 0, 32, ODD_NIBBLES, NO_SCALES, false},
    [QUANT_IQ3_S] = {4, 0, 32, ODD_NIBBLES, NO_SCALES, false},
    [QUANT_IQ4_XS] = {4, 0, 32, BYTES, NO_SCALES, false},
    [QUANT_IQ1_S] = {2, 0, 32, ODD_NIBBLES, NO_SCALES, true},
    [QUANT_IQ1_M] = {2, 0, 32, ODD_NIBBLES, NO_SCALES, true},
    [QUANT_TQ1_0] = {2, 0, 32, NO_SCALES, NO_SCALES, false},
    [QUANT_TQ2_0] = {2, 0, 32, NO_SCALES, NO_SCALES, false},
};
/* clang-format on */

/* ---- sizes ---- */

static size_t scale_bytes(enum scales form, unsigned sub_blocks)
{
    return form == NO_SCALES ? 0 : (size_t)sub_blocks * 16 / (form == BYTES ? 1 : 2);
}

static size_t body_bytes(enum quant_type type)
{
    const struct law *p = &laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    return scale_bytes((enum scales)p->scales, sub_blocks) + scale_bytes((enum scales)p->minima, sub_blocks) +
           (p->shifts && law.sub == 16 ? 64 : 0) + (size_t)law.len * 2 * (p->wide + p->narrow);
}

size_t kern_pack_head_bytes(enum quant_type type, size_t k)
{
    return laws[type].wide ? KERN_PAD(k / ref_law_of(type).len * laws[type].head) : 0;
}

size_t kern_pack_group_bytes(enum quant_type type, size_t k)
{
    return laws[type].wide ? kern_pack_head_bytes(type, k) + k / ref_law_of(type).len * body_bytes(type) : 0;
}

/* ---- codes ---- */

static uint8_t code_of(enum quant_type type, int v)
{
    const unsigned sign = v < 0, magnitude = (unsigned)(v < 0 ? -v : v);
    const int8_t *values = type == QUANT_IQ4_NL || type == QUANT_IQ4_XS ? quant_iq4_values : quant_fp4_values;
    unsigned i = 0;
    switch (type) {
    case QUANT_Q8_0:
        return (uint8_t)(v + 128);
    case QUANT_Q4_0:
        return (uint8_t)(v + 8);
    case QUANT_Q5_0:
        return (uint8_t)(v + 16);
    case QUANT_Q3_K:
        return (uint8_t)(v + 4);
    case QUANT_Q6_K:
        return (uint8_t)(v + 32);
    case QUANT_Q1_0:
        return (uint8_t)((v + 1) / 2);
    case QUANT_Q2_0:
    case QUANT_TQ1_0:
    case QUANT_TQ2_0:
        return (uint8_t)(v + 1);
    case QUANT_IQ1_S:
    case QUANT_IQ1_M:
        return (uint8_t)((v + 9) / 8); /* 8 * value +- 1 */
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
        return (uint8_t)(magnitude / 16 | sign << 2);
    case QUANT_IQ3_XXS:
        return (uint8_t)(magnitude / 8 | sign << 3);
    case QUANT_IQ3_S:
        return (uint8_t)((v + 15) / 2);
    case QUANT_IQ4_NL:
    case QUANT_IQ4_XS:
    case QUANT_MXFP4:
    case QUANT_NVFP4:
        while (i < 15 && values[i] != v) i++;
        return (uint8_t)i;
    default:
        return (uint8_t)v;
    }
}

static void make_codes(enum quant_type type, uint8_t codes[256])
{
    for (int v = -128; v < 128; v++) codes[(uint8_t)v] = code_of(type, v);
}

/* 4 columns of one row, `bits` bits each from bit `from` on, in the low bits of the bytes. */
static uint32_t four(const uint8_t *code, unsigned from, unsigned bits)
{
    return mc_load_u32(code) >> from & 0x01010101u * ((1u << bits) - 1);
}

/* The lines of one plane for 32 columns of row r; returns what follows them. */
static uint8_t *write_plane(uint8_t *line, unsigned r, const uint8_t code[32], unsigned from, unsigned bits)
{
    const unsigned per = 8 / bits;
    for (unsigned v = 0; v < 8; v += per, line += 64) {
        uint32_t word = 0;
        for (unsigned i = 0; i < per; i++) word |= four(code + 4 * (v + i), from, bits) << (bits * i);
        mc_store_u32(line + 4 * r, word);
    }
    return line;
}

static uint8_t *write_codes(const struct law *p, uint8_t *out, unsigned r, const uint8_t *code, unsigned n)
{
    for (unsigned i = 0; i < n; i += 32) {
        switch (p->wide) { /* constants, so that the loops inside vanish */
        case 8:
            out = write_plane(out, r, code + i, 0, 8);
            break;
        case 4:
            out = write_plane(out, r, code + i, 0, 4);
            break;
        case 2:
            out = write_plane(out, r, code + i, 0, 2);
            break;
        default:
            out = write_plane(out, r, code + i, 0, 1);
            break;
        }
        if (p->narrow == 2) out = write_plane(out, r, code + i, 4, 2);
        if (p->narrow == 1) out = write_plane(out, r, code + i, p->wide, 1);
    }
    return out;
}

/* ---- scales ---- */

static uint8_t *write_scales(enum scales form, uint8_t *out, unsigned r, const int16_t *scale, unsigned n)
{
    const unsigned lines = n / 8;
    for (unsigned s = 0; s < n && form == BYTES; s++) out[32 * (s / 2) + 2 * r + s % 2] = (uint8_t)scale[s];
    for (unsigned l = 0; l < lines && form >= NIBBLES; l++) {
        uint32_t word = 0;
        for (unsigned i = 0; i < 8; i++) {
            const unsigned h = i % 2, nibble = i / 2, s = 2 * lines * nibble + 2 * l + h;
            const unsigned v = form == ODD_NIBBLES ? (unsigned)scale[s] / 2 : (unsigned)scale[s];
            word |= (uint32_t)v << (16 * h + 4 * nibble);
        }
        mc_store_u32(out + 64 * l + 4 * r, word);
    }
    return out + scale_bytes(form, n);
}

static bool negative_shift(const struct ref_block *b, unsigned i)
{
    return (b->q[i] & 7) == 7; /* 8 * value - 1 */
}

/* iq1_m: a line of the signs of 32 groups. */
static uint8_t *write_shifts(uint8_t *out, unsigned r, const struct ref_block *b)
{
    uint32_t word = 0;
    for (unsigned g = 0; g < 32; g++) word |= (uint32_t)negative_shift(b, 8 * g) << (16 * (g % 2) + g / 2);
    mc_store_u32(out + 4 * r, word);
    return out + 64;
}

static void write_head(enum quant_type type, uint8_t *head, unsigned r, const struct ref_block *b, const void *block)
{
    const float factor = type == QUANT_IQ3_XXS                                                                       ? 4
                         : type == QUANT_IQ2_XXS || type == QUANT_IQ2_XS || type == QUANT_IQ2_S || laws[type].shifts ? 8
                                                                                                                     : 1;
    if (type == QUANT_MXFP4) {
        head[r] = ((const struct block_mxfp4 *)block)->e;
    } else if (type == QUANT_NVFP4) {
        const struct block_nvfp4 *p = block;
        for (unsigned t = 0; t < 4; t++) head[16 * t + r] = p->sc[t] == 0x7F ? 0 : p->sc[t] & 0x7F;
    } else {
        mc_store_u16(head + 2 * r, f32_to_f16(b->d[0] * factor)); /* was a float16: exact */
        if (laws[type].head == 64) mc_store_u16(head + 32 + 2 * r, f32_to_f16(b->m));
    }
}

/* ---- groups ---- */

static void pack_block(enum quant_type type, uint8_t *head, uint8_t *body, unsigned r, const void *block,
                       const uint8_t codes[256])
{
    const struct law *p = &laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    struct ref_block b;
    ref_unpack(type, &b, block);
    write_head(type, head, r, &b, block);
    if (p->shifts && sub_blocks == 8)
        for (unsigned j = 0; j < 8; j++) b.scale[j] = (int16_t)(b.scale[j] + 16 * negative_shift(&b, 32 * j));
    body = write_scales((enum scales)p->scales, body, r, b.scale, sub_blocks);
    body = write_scales((enum scales)p->minima, body, r, b.min, sub_blocks);
    if (p->shifts && sub_blocks == 16) body = write_shifts(body, r, &b);
    for (unsigned i = 0; i < law.len; i++) b.q[i] = (int8_t)codes[(uint8_t)b.q[i]];
    write_codes(p, body, r, (const uint8_t *)b.q, law.len);
}

void kern_pack_group(enum quant_type type, void *group, const void *w, size_t w_stride, size_t k)
{
    const size_t block_bytes = quant_info(type)->block_bytes, body = body_bytes(type), head = kern_pack_head_bytes(type, k);
    const size_t blocks = k / ref_law_of(type).len;
    uint8_t codes[256];
    assert(laws[type].wide && k % ref_law_of(type).len == 0);
    make_codes(type, codes);
    memset((uint8_t *)group + blocks * laws[type].head, 0, head - blocks * laws[type].head);
    for (size_t b = 0; b < blocks; b++)
        for (unsigned r = 0; r < KERN_PACK_ROWS; r++)
            pack_block(type, (uint8_t *)group + b * laws[type].head, (uint8_t *)group + head + b * body, r,
                       (const uint8_t *)w + r * w_stride + b * block_bytes, codes);
}
