/* grids.h - codebooks of the weight formats (quants.md 4). Written by scripts/make_grids.py; do not edit.
 * Every table is 64-byte aligned; the bytes of an entry are in weight order. */
#ifndef KERNELS_QUANT_GRIDS_H
#define KERNELS_QUANT_GRIDS_H

#include <stdint.h>

/* iq1_s, iq1_m: 11-bit index -> 8 weights -1, 0, 1 */
extern const int8_t quant_iq1_s_grid[2048][8];
/* iq2_xxs: 8-bit index -> 8 magnitudes 8, 25, 43 */
extern const uint8_t quant_iq2_xxs_grid[256][8];
/* iq2_xs: 9-bit index -> 8 magnitudes */
extern const uint8_t quant_iq2_xs_grid[512][8];
/* iq2_s: 10-bit index -> 8 magnitudes */
extern const uint8_t quant_iq2_s_grid[1024][8];
/* iq3_xxs: 8-bit index -> 4 magnitudes */
extern const uint8_t quant_iq3_xxs_grid[256][4];
/* iq3_s: 9-bit index -> 4 odd magnitudes */
extern const uint8_t quant_iq3_s_grid[512][4];
/* iq4_nl, iq4_xs: 4-bit code -> value */
extern const int8_t quant_iq4_values[16];
/* mxfp4, nvfp4: 4-bit code -> twice its value */
extern const int8_t quant_fp4_values[16];
/* 7-bit sign code -> sign byte (bit 7 makes the parity even) */
extern const uint8_t quant_sign_bytes[128];

/* X(table, CRC-32 of its bytes), for the test. */
#define QUANT_GRIDS(X) \
    X(quant_iq1_s_grid, 0xb85e6ccf) \
    X(quant_iq2_xxs_grid, 0x9924ff02) \
    X(quant_iq2_xs_grid, 0xfa1e1bfd) \
    X(quant_iq2_s_grid, 0x25ae5bf1) \
    X(quant_iq3_xxs_grid, 0x07ba9ed0) \
    X(quant_iq3_s_grid, 0xf576e4f3) \
    X(quant_iq4_values, 0xbbe1a3fc) \
    X(quant_fp4_values, 0x08e8de1e) \
    X(quant_sign_bytes, 0xffab7940)

#endif
