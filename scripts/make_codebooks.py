#!/usr/bin/env python3
"""Writes kernels/avx512/codebook_iquant.h and codebook_iq1.h from scripts/tables/*.csv.

The AVX-512 kernels keep codebooks as byte tables, which vpermi2b looks up from registers: 128 entries for each instruction.
An entry of eight weights becomes two bytes (first and last four weights), two bits a weight: the number of the magnitude, or
value + 1 of the ternary book. An entry of four weights with eight magnitudes becomes two bytes of two nibbles.

The ternary book is sorted, last weights most significant, so that the last four weights grow with the index and grow at most once
in 16 neighbouring entries (checked here): three tables of 128 replace one of 2048.

    python3 scripts/make_codebooks.py     run from anywhere; needs nothing but the standard library
"""
import os

from make_grids import ROOT, load


def table(name, what, data):
    lines = ["/* %s */" % what, "static const MC_ALIGNED(64) uint8_t %s[%d] = {" % (name, len(data))]
    line = "   "
    for v in data:
        if len(line) + len(str(v)) + 2 > 126:
            lines.append(line)
            line = "   "
        line += " %d," % v
    return lines + [line, "};", ""]


def bits2(codes):
    return sum(c << (2 * i) for i, c in enumerate(codes))


def two_bit_book(grid):
    rows, _ = load(grid)
    levels = [8, 25, 43]
    codes = [[levels.index(v) for v in row] for row in rows]
    return [bits2(c[:4]) for c in codes], [bits2(c[4:]) for c in codes]


def nibble_book(grid):
    rows, _ = load(grid)
    levels = sorted({v for row in rows for v in row})
    codes = [[levels.index(v) for v in row] for row in rows]
    return [c[0] | c[1] << 4 for c in codes], [c[2] | c[3] << 4 for c in codes]


def ternary_book():
    rows, _ = load("iq1_s_grid")
    low = [bits2([v + 1 for v in row[:4]]) for row in rows]
    high = [bits2([v + 1 for v in row[4:]]) for row in rows]
    rank = [sum((v + 1) * 3**i for i, v in enumerate(row[4:])) for row in rows]
    base, step = [], []
    for s in range(0, len(rows), 16):
        part = rank[s:s + 16]
        grown = [r - part[0] for r in part]
        assert grown == sorted(grown) and grown[-1] <= 1
        base.append(part[0])
        step.append(grown.index(1) if 1 in grown else 16)
    by_rank = [0] * 128
    for r, h in zip(rank, high):
        by_rank[r] = h
    return low, base, step, by_rank


def header(name, body):
    guard = "KERNELS_AVX512_" + name.upper().replace(".", "_")
    head = ["/* %s - codebooks as byte tables for vpermi2b, private to this folder." % name,
            " * Written by scripts/make_codebooks.py, which says how; do not edit. */",
            "#ifndef " + guard, "#define " + guard, "",
            '#include "platform/base/compiler.h"', "", "#include <stdint.h>", "", "/* clang-format off */"]
    with open(os.path.join(ROOT, "kernels", "avx512", name), "w", encoding="ascii", newline="\n") as f:
        f.write("\n".join(head + body + ["/* clang-format on */", "#endif", ""]))


def main():
    body = []
    for name in ("iq2_xxs", "iq2_xs", "iq2_s"):
        low, high = two_bit_book(name + "_grid")
        body += table(name + "_low", name + ": weights 0..3, two bits each", low)
        body += table(name + "_high", name + ": weights 4..7", high)
    for name in ("iq3_xxs", "iq3_s"):
        low, high = nibble_book(name + "_grid")
        body += table(name + "_low", name + ": weights 0 and 1, a nibble each", low)
        body += table(name + "_high", name + ": weights 2 and 3", high)
    header("codebook_iquant.h", body)

    low, base, step, by_rank = ternary_book()
    body = table("iq1_low", "iq1_s, iq1_m: weights 0..3 plus 1, two bits each", low)
    body += table("iq1_base", "rank of the last four weights at index 16i", base)
    body += table("iq1_step", "where in the 16 it grows by one; 16: nowhere", step)
    body += table("iq1_high", "rank -> weights 4..7 plus 1, two bits each", by_rank)
    header("codebook_iq1.h", body)


if __name__ == "__main__":
    main()
