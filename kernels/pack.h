/* clang-format off: it would fill the table below into paragraphs */
/* pack.h - the resident form of a matrix: 16 rows interleaved, so that vector lane r is row r (R16).
 *
 * A matrix that stays in memory is rewritten once while loading; the sums stay the same exact integers in the same float chain,
 * so packed and file layout give the same bits (kernels.h, R1). One layout for all instruction sets; a 64-byte line holds one
 * dword for each of 16 rows, half a line those of 8 rows.
 *
 * A group is 16 rows x k columns: first the head with the float scales of all its blocks, filled up to a line, then the bodies
 * of the blocks without gaps, each a whole number of lines. A block has as many columns as one of the file format.
 *
 *   head    for each block d[16], or d[16] and m[16] (dmin), as float16. mxfp4: e[16] bytes. nvfp4: four times 16 bytes, E4M3
 *           without sign (0x7F is 240, the file's 0x7F is stored as 0)
 *   body    integer scales, if any, then codes
 *   scales  bytes:   pair p of sub-blocks 2p and 2p + 1 is 32 bytes, [row][2]
 *           nibbles: word h of dword r, nibble i. With 32 columns to a sub-block one line, sub-block 2i + h; with 16 columns
 *                    two lines, line l has sub-block 4i + 2l + h. So nibble i always belongs to columns 64i .. 64i + 63.
 *   codes   planes of b-bit unsigned codes (value + bias, or an index into a table of values). The lines of 32 columns stand
 *           together, the wider plane first. Column c (of 32) of row r:
 *     8 bits     line c/4, dword r, byte c%4
 *     4 bits     line c/8: byte c%4 of dword r holds column 8*(c/8) + c%4 in its low and column + 4 in its high nibble
 *     2 bits     line c/16: byte c%4 of dword r holds columns 16*(c/16) + c%4 + 4*i in bits 2i, i = 0..3
 *     1 bit      byte c%4 of dword r holds columns c%4 + 4*i in bit i, i = 0..7
 *     3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2 planes.
 *
 * What is in them, and bits a weight (the file's where they differ):
 *   q8_0     8 bits, code = value + 128                                  8.5
 *   q1_0     1 bit, value = 2 * code - 1                                 1.125
 *   q2_0     2 bits, + 1                                                 2.25
 *   q4_0     4 bits, + 8                                                 4.5
 *   q4_1     4 bits                                                      5
 *   q5_0     4 + 1, + 16                                                 5.5
 *   q5_1     4 + 1                                                       6
 *   iq4_nl   4 bits: the file's index                                    4.5
 *   mxfp4    as iq4_nl                                                   4.25
 *   nvfp4    as iq4_nl                                                   4.5
 *   q2_K     nibbles of scales, nibbles of minima, 2 bits                2.625
 *   q3_K     signed bytes, 2 + 1, + 4                                    3.5625 (3.4375)
 *   q4_K     bytes of scales, bytes of minima, 4 bits                    4.625 (4.5)
 *   q5_K     as q4_K, 4 + 1                                              5.625 (5.5)
 *   q6_K     signed bytes, 4 + 2, + 32                                   6.5625
 *   iq4_xs   signed bytes, 4 bits: the file's index                      4.3125 (4.25)
 *   iq2_xxs  nibbles (ls - 1) / 2, 2 + 1: magnitude 8, 25, 43; the narrow plane is the sign     3.1875 (2.0625)
 *   iq2_xs, iq2_s  as iq2_xxs, 16 columns to a scale                     3.3125 (2.3125, 2.5625)
 *   iq3_xxs  nibbles (ls - 1) / 2, 4 bits: magnitude / 8 in bits 0..2, bit 3 the sign           4.1875 (3.0625)
 *   iq3_s    nibbles (ls - 1) / 2, 4 bits, value = 2 * code - 15         4.1875 (3.4375)
 *   iq1_s    nibbles (ls - 1) / 2, bit 3 the shift's sign; 2 bits, + 1   2.1875 (1.5625)
 *   iq1_m    nibbles (ls - 1) / 2 for each 16 columns; a line of shift signs, word g%2 of dword r, bit g/2, for group g of 8
 *            columns; 2 bits, + 1                                        2.4375 (1.75)
 *   tq1_0, tq2_0  2 bits, + 1                                            2.0625 (1.6875, 2.0625)
 */
/* clang-format on */
#ifndef KERNELS_PACK_H
#define KERNELS_PACK_H

#include "kernels/kernels.h"

enum { KERN_PACK_ROWS = 16 };

/* Bytes of a group of 16 rows of k weights, a multiple of 64; 0: this type has no packed form. k as in kern_matmul_fn. */
size_t kern_pack_group_bytes(enum quant_type type, size_t k);
/* Bytes of its head. */
size_t kern_pack_head_bytes(enum quant_type type, size_t k);

#endif
