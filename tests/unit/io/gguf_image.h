/* gguf_image.h - writes GGUF files into memory, byte by byte and without checks, so that tests can write wrong ones.
 *
 * Counts in the header and offsets in the directory are what the caller says. img_* appends, patch_* overwrites. */
#ifndef TESTS_UNIT_IO_GGUF_IMAGE_H
#define TESTS_UNIT_IO_GGUF_IMAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct image {
    uint8_t *data;
    size_t size, cap;
};

static inline void img_bytes(struct image *m, const void *p, size_t n)
{
    if (m->size + n > m->cap) {
        m->cap = 2 * (m->size + n) + 64;
        m->data = realloc(m->data, m->cap);
        assert_non_null(m->data);
    }
    if (n) memcpy(m->data + m->size, p, n);
    m->size += n;
}

static inline void img_fill(struct image *m, uint8_t byte, size_t n)
{
    for (size_t i = 0; i < n; i++) img_bytes(m, &byte, 1);
}

static inline void img_u32(struct image *m, uint32_t v)
{
    uint8_t b[4];
    mc_store_u32(b, v);
    img_bytes(m, b, 4);
}

static inline void img_u64(struct image *m, uint64_t v)
{
    uint8_t b[8];
    mc_store_u64(b, v);
    img_bytes(m, b, 8);
}

static inline void img_text(struct image *m, const char *s)
{
    img_u64(m, strlen(s));
    img_bytes(m, s, strlen(s));
}

static inline void img_pad(struct image *m, size_t step)
{
    while (m->size % step) img_fill(m, 0, 1);
}

static inline void img_header(struct image *m, uint64_t n_tensors, uint64_t n_values)
{
    img_bytes(m, "GGUF", 4);
    img_u32(m, 3);
    img_u64(m, n_tensors);
    img_u64(m, n_values);
}

/* A key and its type; the bytes of the value are for the caller. */
static inline void img_key(struct image *m, const char *key, uint32_t type)
{
    img_text(m, key);
    img_u32(m, type);
}

static inline void img_kv_u32(struct image *m, const char *key, uint32_t v)
{
    img_key(m, key, GGUF_U32);
    img_u32(m, v);
}

static inline void img_kv_u16(struct image *m, const char *key, uint16_t v)
{
    const uint8_t b[2] = {(uint8_t)v, (uint8_t)(v >> 8)};
    img_key(m, key, GGUF_U16);
    img_bytes(m, b, 2);
}

static inline void img_kv_text(struct image *m, const char *key, const char *text)
{
    img_key(m, key, GGUF_STRING);
    img_text(m, text);
}

static inline void img_array(struct image *m, const char *key, uint32_t item_type, uint64_t count)
{
    img_key(m, key, GGUF_ARRAY);
    img_u32(m, item_type);
    img_u64(m, count);
}

/* A directory entry of one or two dimensions (ne1 0: one). */
static inline void img_tensor(struct image *m, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t off)
{
    img_text(m, name);
    img_u32(m, ne1 ? 2 : 1);
    img_u64(m, ne0);
    if (ne1) img_u64(m, ne1);
    img_u32(m, type);
    img_u64(m, off);
}

static inline void patch_u32(struct image *m, size_t at, uint32_t v)
{
    mc_store_u32(m->data + at, v);
}

static inline void patch_u64(struct image *m, size_t at, uint64_t v)
{
    mc_store_u64(m->data + at, v);
}

/* ---- a good file ------------------------------------------------------------------------------------------------ */

enum { GOOD_VALUES = 2 };

static inline void values(struct image *m)
{
    img_kv_text(m, "general.architecture", "deepseek4");
    img_kv_u32(m, "deepseek4.block_count", 43);
}

/* Two tensors, 32 and 64 bytes. */
static inline void good(struct image *m)
{
    img_header(m, 2, GOOD_VALUES);
    values(m);
    img_tensor(m, "first.weight", QUANT_F32, 8, 0, 0);
    img_tensor(m, "second.weight", QUANT_F32, 4, 4, 32);
    img_pad(m, 32);
    img_fill(m, 1, 32);
    img_fill(m, 2, 64);
}

static inline void img_save(const struct image *m, const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (m->size) assert_int_equal(fwrite(m->data, 1, m->size, f), m->size);
    assert_int_equal(fclose(f), 0);
}

static inline void img_free(struct image *m)
{
    free(m->data);
    *m = (struct image){0};
}

static inline bool span_is(struct mc_span s, const char *text)
{
    return s.size == strlen(text) && !memcmp(s.data, text, s.size);
}

static inline void assert_says(const struct mc_err *err, const char *part)
{
    if (!strstr(err->msg, part)) fail_msg("\"%s\" does not mention \"%s\"", err->msg, part);
}

#endif
