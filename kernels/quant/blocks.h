/* blocks.h - bytes of one block of each weight format (quants.md 4).
 *
 * Blocks follow each other without padding and start at any address, so every field is made of bytes; multi-byte fields are
 * little-endian (mc_load_u16, mc_load_u32). */
#ifndef KERNELS_QUANT_BLOCKS_H
#define KERNELS_QUANT_BLOCKS_H

#include <stdint.h>

/* clang-format off */
/* ---- 32 weights ---- */
struct block_q4_0 { uint8_t d[2], qs[16]; };
struct block_q4_1 { uint8_t d[2], m[2], qs[16]; };
struct block_q5_0 { uint8_t d[2], qh[4], qs[16]; };
struct block_q5_1 { uint8_t d[2], m[2], qh[4], qs[16]; };
struct block_q8_0 { uint8_t d[2]; int8_t q[32]; };
struct block_iq4_nl { uint8_t d[2], qs[16]; };
struct block_mxfp4 { uint8_t e, qs[16]; };
/* ---- 64 and 128 weights ---- */
struct block_q2_0 { uint8_t d[2], qs[16]; };
struct block_nvfp4 { uint8_t sc[4], qs[32]; };
struct block_q1_0 { uint8_t d[2], qs[16]; };
/* ---- 256 weights ---- */
struct block_q2_K { uint8_t sm[16], qs[64], d[2], dmin[2]; };
struct block_q3_K { uint8_t hm[32], qs[64], s[12], d[2]; };
struct block_q4_K { uint8_t d[2], dmin[2], s[12], qs[128]; };
struct block_q5_K { uint8_t d[2], dmin[2], s[12], qh[32], qs[128]; };
struct block_q6_K { uint8_t ql[128], qh[64]; int8_t sc[16]; uint8_t d[2]; };
struct block_iq2_xxs { uint8_t d[2]; struct { uint8_t idx[4], x[4]; } sub[8]; };
struct block_iq2_xs { uint8_t d[2], q[32][2], s[8]; };
struct block_iq2_s { uint8_t d[2], lo[32], sg[32], qh[8], s[8]; };
struct block_iq3_xxs { uint8_t d[2], idx[64], x[8][4]; };
struct block_iq3_s { uint8_t d[2], lo[64], qh[8], sg[32], s[4]; };
struct block_iq4_xs { uint8_t d[2], sh[2], sl[4], qs[128]; };
struct block_iq1_s { uint8_t d[2], lo[32], qh[8][2]; };
struct block_iq1_m { uint8_t lo[32], qh[16], sc[4][2]; };
struct block_tq1_0 { uint8_t qs[48], qh[4], d[2]; };
struct block_tq2_0 { uint8_t qs[64], d[2]; };
/* clang-format on */

#define QUANT_BLOCK_SIZE(type, bytes) _Static_assert(sizeof(struct block_##type) == (bytes), "file format")
QUANT_BLOCK_SIZE(q4_0, 18);
QUANT_BLOCK_SIZE(q4_1, 20);
QUANT_BLOCK_SIZE(q5_0, 22);
QUANT_BLOCK_SIZE(q5_1, 24);
QUANT_BLOCK_SIZE(q8_0, 34);
QUANT_BLOCK_SIZE(iq4_nl, 18);
QUANT_BLOCK_SIZE(mxfp4, 17);
QUANT_BLOCK_SIZE(q2_0, 18);
QUANT_BLOCK_SIZE(nvfp4, 36);
QUANT_BLOCK_SIZE(q1_0, 18);
QUANT_BLOCK_SIZE(q2_K, 84);
QUANT_BLOCK_SIZE(q3_K, 110);
QUANT_BLOCK_SIZE(q4_K, 144);
QUANT_BLOCK_SIZE(q5_K, 176);
QUANT_BLOCK_SIZE(q6_K, 210);
QUANT_BLOCK_SIZE(iq2_xxs, 66);
QUANT_BLOCK_SIZE(iq2_xs, 74);
QUANT_BLOCK_SIZE(iq2_s, 82);
QUANT_BLOCK_SIZE(iq3_xxs, 98);
QUANT_BLOCK_SIZE(iq3_s, 110);
QUANT_BLOCK_SIZE(iq4_xs, 136);
QUANT_BLOCK_SIZE(iq1_s, 50);
QUANT_BLOCK_SIZE(iq1_m, 56);
QUANT_BLOCK_SIZE(tq1_0, 54);
QUANT_BLOCK_SIZE(tq2_0, 66);

#endif
