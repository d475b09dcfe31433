#!/usr/bin/env python3
"""Writes runtime/text/unicode_ranges.h from tests/data/tokenizer/unicode_classes.tsv.

The pre-tokenizer's classes are those of Unicode 16.0. A Unicode library gives those of whatever version it was built with
(utf8proc 2.8.0, Unicode 15.0, differs in 5 812 code points), so the table is part of the source.

    scripts/make_unicode_classes.py [--check]       --check: fail if the header is not what would be written
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {"L": "LETTER", "M": "MARK", "N": "NUMBER", "P": "PUNCT", "S": "SYMBOL", "Z": "SPACE"}
CODES = {None: 0, "L": 1, "M": 2, "N": 3, "P": 4, "S": 5, "Z": 6}


def read_classes(path):
    classes = [None] * 0x110000
    for line in path.read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        name, first, last = line.split("\t")
        for cp in range(int(first, 16), int(last, 16) + 1):
            assert classes[cp] is None and name in NAMES, line
            classes[cp] = name
    return classes


def rows(items, per_line):
    return "\n".join("    " + " ".join(f"{x}," for x in items[i:i + per_line]) for i in range(0, len(items), per_line))


def render(classes):
    starts = [cp for cp in range(0x110000) if cp == 0 or classes[cp] != classes[cp - 1]]
    ranges = [f"0x{cp << 3 | CODES[classes[cp]]:06X}" for cp in starts]
    ascii_codes = [str(CODES[classes[cp]]) for cp in range(128)]
    return f"""/* unicode_ranges.h - written by scripts/make_unicode_classes.py, not by hand.
 *
 * Classes of all code points (Unicode 16.0): where a run begins, and its class in the low 3 bits. Sorted; each run lasts
 * until the next. For unicode_classes.c only. */
#ifndef RUNTIME_TEXT_UNICODE_RANGES_H
#define RUNTIME_TEXT_UNICODE_RANGES_H

#include <stdint.h>

/* clang-format off */
static const uint8_t unicode_ascii[128] = {{
{rows(ascii_codes, 32)}
}};

static const uint32_t unicode_ranges[{len(ranges)}] = {{
{rows(ranges, 12)}
}};
/* clang-format on */

#endif
"""


def main():
    text = render(read_classes(ROOT / "tests/data/tokenizer/unicode_classes.tsv"))
    path = ROOT / "runtime/text/unicode_ranges.h"
    if "--check" in sys.argv[1:]:
        if path.read_text() != text:
            sys.exit(f"{path}: not what scripts/make_unicode_classes.py writes; run it")
    else:
        path.write_text(text)


main()
