/* pack.c - matrices into the form of pack.h: sizes, and the scalar twin of the pack slots.
 *
 * The scalar decoder (ref/unpack.h) gives every block as signed values and integer scales; a table of 256 bytes turns values
 * into codes, and the code planes are written a dword (4 columns of one row) at a time. So a format is one row of `pack_laws`,
 * and nothing of its file layout is known twice, apart from scales that are kept as their bytes. */
#include "kernels/pack.h"

#include "kernels/kernels_isa.h"
#include "kernels/pack_law.h"

#include <assert.h>

/* ---- sizes ---- */

size_t kern_pack_head_bytes(enum quant_type type, size_t k)
{
    return pack_laws[type].wide ? KERN_PAD(k / ref_law_of(type).len * pack_laws[type].head) : 0;
}

size_t kern_pack_group_bytes(enum quant_type type, size_t k)
{
    return pack_laws[type].wide ? kern_pack_head_bytes(type, k) + k / ref_law_of(type).len * pack_body_bytes(type) : 0;
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

static uint8_t *write_codes(const struct pack_law *p, uint8_t *out, unsigned r, const uint8_t *code, unsigned n)
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

static uint8_t *write_scales(enum pack_scales form, uint8_t *out, unsigned r, const int16_t *scale, unsigned n)
{
    const unsigned lines = n / 8;
    for (unsigned s = 0; s < n && form == PACK_BYTES; s++) out[32 * (s / 2) + 2 * r + s % 2] = (uint8_t)scale[s];
    for (unsigned l = 0; l < lines && form >= PACK_NIBBLES; l++) {
        uint32_t word = 0;
        for (unsigned i = 0; i < 8; i++) {
            const unsigned h = i % 2, nibble = i / 2, s = 2 * lines * nibble + 2 * l + h;
            const unsigned v = form == PACK_ODD_NIBBLES ? (unsigned)scale[s] / 2 : (unsigned)scale[s];
            word |= (uint32_t)v << (16 * h + 4 * nibble);
        }
        mc_store_u32(out + 64 * l + 4 * r, word);
    }
    return out + pack_scale_bytes(form, n);
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

/* ---- groups ---- */

static void pack_block(enum quant_type type, uint8_t *head, uint8_t *body, unsigned r, const void *block,
                       const uint8_t codes[256])
{
    const struct pack_law *p = &pack_laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    struct ref_block b;
    ref_unpack(type, &b, block);
    pack_write_head(type, head, r, block);
    if (p->shifts && sub_blocks == 8)
        for (unsigned j = 0; j < 8; j++) b.scale[j] = (int16_t)(b.scale[j] + 16 * negative_shift(&b, 32 * j));
    body = write_scales((enum pack_scales)p->scales, body, r, b.scale, sub_blocks);
    body = write_scales((enum pack_scales)p->minima, body, r, b.min, sub_blocks);
    if (p->shifts && sub_blocks == 16) body = write_shifts(body, r, &b);
    for (unsigned i = 0; i < law.len; i++) b.q[i] = (int8_t)codes[(uint8_t)b.q[i]];
    write_codes(p, body, r, (const uint8_t *)b.q, law.len);
}

static MC_NOINLINE void pack_group(enum quant_type type, void *group, const void *w, size_t w_stride, size_t k)
{
    const size_t block_bytes = quant_info(type)->block_bytes, body = pack_body_bytes(type),
                 head = kern_pack_head_bytes(type, k);
    const size_t blocks = k / ref_law_of(type).len;
    uint8_t codes[256];
    assert(pack_laws[type].wide && k % ref_law_of(type).len == 0);
    make_codes(type, codes);
    memset((uint8_t *)group + blocks * pack_laws[type].head, 0, head - blocks * pack_laws[type].head);
    for (size_t b = 0; b < blocks; b++)
        for (unsigned r = 0; r < KERN_PACK_ROWS; r++)
            pack_block(type, (uint8_t *)group + b * pack_laws[type].head, (uint8_t *)group + head + b * body, r,
                       (const uint8_t *)w + r * w_stride + b * block_bytes, codes);
}

#define PACK(name, NAME, len, step, sub, minimum)                                                                              \
    static void pack_##name(void *group, const void *w, size_t w_stride, size_t k)                                             \
    {                                                                                                                          \
        pack_group(QUANT_##NAME, group, w, w_stride, k);                                                                       \
    }
REF_TYPES(PACK)

void kern_init_ref_pack(struct kern_table *t)
{
#define PACK_SLOT(name, NAME, len, step, sub, minimum) t->pack[QUANT_##NAME] = pack_##name;
    REF_TYPES(PACK_SLOT)
}
