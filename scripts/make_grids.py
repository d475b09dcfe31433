#!/usr/bin/env python3
"""Writes kernels/quant/grids.h and grids.c from scripts/tables/*.csv.

The codebooks of the weight formats are facts of the file format; nobody types them. Each CSV names the CRC-32 of its
raw bytes, which is checked here and repeated in the generated file, where a unit test compares it once more with the
compiled array.

    python3 scripts/make_grids.py            run from anywhere; needs nothing but the standard library
"""
import os
import re
import sys
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# CSV file, C name, element type, what it is
TABLES = [
    ("iq1_s_grid", "quant_iq1_s_grid", "int8_t", "iq1_s, iq1_m: 11-bit index -> 8 weights -1, 0, 1"),
    ("iq2_xxs_grid", "quant_iq2_xxs_grid", "uint8_t", "iq2_xxs: 8-bit index -> 8 magnitudes 8, 25, 43"),
    ("iq2_xs_grid", "quant_iq2_xs_grid", "uint8_t", "iq2_xs: 9-bit index -> 8 magnitudes"),
    ("iq2_s_grid", "quant_iq2_s_grid", "uint8_t", "iq2_s: 10-bit index -> 8 magnitudes"),
    ("iq3_xxs_grid", "quant_iq3_xxs_grid", "uint8_t", "iq3_xxs: 8-bit index -> 4 magnitudes"),
    ("iq3_s_grid", "quant_iq3_s_grid", "uint8_t", "iq3_s: 9-bit index -> 4 odd magnitudes"),
    ("kvalues_iq4nl", "quant_iq4_values", "int8_t", "iq4_nl, iq4_xs: 4-bit code -> value"),
    ("kvalues_fp4", "quant_fp4_values", "int8_t", "mxfp4, nvfp4: 4-bit code -> twice its value"),
    ("ksigns", "quant_sign_bytes", "uint8_t", "7-bit sign code -> sign byte (bit 7 makes the parity even)"),
]


def load(name):
    """Rows of numbers without the index column; stops when the CRC in the head is not that of the bytes."""
    path = os.path.join(ROOT, "scripts", "tables", name + ".csv")
    rows, crc = [], None
    with open(path, encoding="ascii") as f:
        for line in f:
            found = re.search(r"crc32=([0-9a-f]{8})", line)
            if found:
                crc = found.group(1)
            if line[0] != "#" and not line.startswith("index"):
                rows.append([int(v) for v in line.split(",")[1:]])
    got = "%08x" % zlib.crc32(bytes(v & 255 for row in rows for v in row))
    if got != crc:
        sys.exit("%s: crc32 of the values is %s, the file says %s" % (path, got, crc))
    return rows, crc


def body(rows):
    if len(rows[0]) == 1:
        items = [str(r[0]) for r in rows]
    else:
        items = ["{" + ", ".join(map(str, r)) + "}" for r in rows]
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 126:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line])


def main():
    head = ["/* grids.h - codebooks of the weight formats (quants.md 4). Written by scripts/make_grids.py; do not edit.",
            " * Every table is 64-byte aligned; the bytes of an entry are in weight order. */",
            "#ifndef KERNELS_QUANT_GRIDS_H", "#define KERNELS_QUANT_GRIDS_H", "", "#include <stdint.h>", ""]
    code = ["/* grids.c - see grids.h. Written by scripts/make_grids.py; do not edit. */", '#include "kernels/quant/grids.h"', "",
            '#include "platform/base/compiler.h"', "", "/* clang-format off */"]
    crcs = []
    for name, cname, ctype, what in TABLES:
        rows, crc = load(name)
        dims = "[%d]" % len(rows) + ("[%d]" % len(rows[0]) if len(rows[0]) > 1 else "")
        head += ["/* %s */" % what, "extern const %s %s%s;" % (ctype, cname, dims)]
        code += ["MC_ALIGNED(64) const %s %s%s = {" % (ctype, cname, dims), body(rows), "};"]
        crcs.append("    X(%s, 0x%s)" % (cname, crc))
    head += ["", "/* X(table, CRC-32 of its bytes), for the test. */", "#define QUANT_GRIDS(X) \\", " \\\n".join(crcs), "", "#endif", ""]
    for name, lines in (("grids.h", head), ("grids.c", code + [""])):
        with open(os.path.join(ROOT, "kernels", "quant", name), "w", encoding="ascii", newline="\n") as f:
            f.write("\n".join(lines))


if __name__ == "__main__":
    main()
