/* unicode_classes.h - the six classes the pre-tokenizer knows (Unicode 16.0, the same on every system). */
#ifndef RUNTIME_TEXT_UNICODE_CLASSES_H
#define RUNTIME_TEXT_UNICODE_CLASSES_H

#include <stdint.h>

/* The numbers are those of unicode_ranges.h. OTHER: controls, format characters, private use, unassigned. */
enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER,
    UNICODE_MARK,
    UNICODE_NUMBER,
    UNICODE_PUNCT,
    UNICODE_SYMBOL,
    UNICODE_SPACE
};

/* Any value; OTHER above U+10FFFF. */
enum unicode_class unicode_class_of(uint32_t cp);

#endif
