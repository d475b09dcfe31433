/* pack.h - the resident form of a matrix: 16 rows interleaved, so that vector lane r is row r (R16).
 *
 * A matrix that stays in memory is rewritten once while loading; the sums stay the same exact integers in the same float chain, so packed
 * and file layout give the same bits (kernels.h, R1). One layout for all instruction sets; a 64-byte line holds one dword for
 * each of 16 rows.
 *
 * A group is 16 rows x k columns; a block of it is 16 rows x 256 columns (types of 256-weight blocks) or x 32 columns (the others; q2_0 and
 * nvfp4 x 64, q1_0 x 128). Blocks follow each other without gaps, every part of a block is a multiple of 64 bytes except where said.
 *
 *   scale part   one value for each of the 16 rows: f16 d[16] (and dmin[16], or m[16]); then sub-scales as bytes sc[j][16] (and mn[j][16])
 *   code part    planes of b-bit unsigned codes (value + bias, or an index into a table of values). Column c of row r:
 *     8 bits     line c/4, dword r, byte c%4
 *     4 bits     line c/8: byte c%4 of dword r holds column 8*(c/8) + c%4 in its low and column + 4 in its high nibble
 *     2 bits     line c/16: byte c%4 of dword r holds columns 16*(c/16) + c%4 + 4*i in bits 2i, i = 0..3
 *     1 bit      line c/32: byte c%4 of dword r holds columns 32*(c/32) + c%4 + 4*i in bit i, i = 0..7
 *     3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2 planes, the wider plane first.
 */
#ifndef KERNELS_PACK_H
#define KERNELS_PACK_H

#include "kernels/kernels.h"

enum { KERN_PACK_ROWS = 16 };

/* Bytes of a group of 16 rows of k weights, a multiple of 64; 0: this type has no packed form. */
size_t kern_pack_group_bytes(enum quant_type type, size_t k);
/* 16 rows in file layout (w_stride bytes apart) -> one group, 64-byte aligned. Portable code, exact. */
void kern_pack_group(enum quant_type type, void *group, const void *w, size_t w_stride, size_t k);

#endif
