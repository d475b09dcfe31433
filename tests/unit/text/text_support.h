/* text_support.h - what the tests of this room share: golden files, vocabularies, ids against expectations, SHA-256. */
#ifndef TESTS_UNIT_TEXT_TEXT_SUPPORT_H
#define TESTS_UNIT_TEXT_TEXT_SUPPORT_H

#include "io/gguf/gguf.h"
#include "platform/base/json.h"
#include "runtime/text/text_buf.h"
#include "runtime/text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TINY_MODEL MC_MODELS "/tiny-dsv4.gguf"
#define DSV4_VOCAB MC_TEST_DATA "/tokenizer/dsv4-tokenizer.gguf"

/* A whole file; fails the test if it cannot be read. */
static inline void ts_read_file(const char *path, struct text_buf *out)
{
    FILE *const f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    char chunk[65536];
    text_buf_init(out);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) text_buf_add(out, chunk, n);
    fclose(f);
    assert_false(out->failed);
}

static inline struct mc_json *ts_parse(struct mc_span text)
{
    struct mc_json *v = NULL;
    struct mc_err err;
    if (mc_json_parse(text, &v, &err)) fail_msg("%s", err.msg);
    return v;
}

/* Calls row(value, user) for each line of a file of JSON lines; returns how many there were. */
static inline size_t ts_each_line(const char *path, void (*row)(const struct mc_json *, void *), void *user)
{
    struct text_buf file;
    ts_read_file(path, &file);
    size_t n = 0;
    for (size_t at = 0; at < file.size;) {
        const char *const end = memchr(file.data + at, '\n', file.size - at);
        const size_t size = end ? (size_t)(end - (file.data + at)) : file.size - at;
        if (size > 0) {
            struct mc_json *const v = ts_parse(text_span(file.data + at, size));
            row(v, user);
            mc_json_destroy(v);
            n++;
        }
        at += size + 1;
    }
    text_buf_deinit(&file);
    return n;
}

static inline struct tokenizer *ts_tokenizer(const char *path)
{
    struct mc_err err;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    if (gguf_open(path, &g, &err) || tokenizer_create(g, &t, &err)) fail_msg("%s", err.msg);
    gguf_close(g);
    return t;
}

static inline struct mc_span ts_string(const struct mc_json *row, const char *key)
{
    return mc_json_string(mc_json_get(row, key));
}

static inline void ts_expect_text(const char *what, struct mc_span row_id, struct mc_span want, struct mc_span got)
{
    if (text_same(want, got)) return;
    fail_msg("%.*s, %s:\nwant %d bytes: %.*s\ngot  %d bytes: %.*s", (int)row_id.size, (const char *)row_id.data, what,
             (int)want.size, (int)want.size, want.size ? (const char *)want.data : "", (int)got.size, (int)got.size,
             got.size ? (const char *)got.data : "");
}

/* want: a JSON array of ids. */
static inline void ts_expect_ids(const char *what, struct mc_span row_id, const struct mc_json *want,
                                 const struct token_list *got)
{
    size_t i = 0;
    const size_t n = mc_json_count(want);
    assert_int_equal(mc_json_type(want), MC_JSON_ARRAY);
    while (i < n && i < got->n && mc_json_int(mc_json_item(want, i)) == got->ids[i]) i++;
    if (i == n && i == got->n) return;
    fail_msg("%.*s, %s: ids differ at %d: want %d of %d, got %d of %d", (int)row_id.size, (const char *)row_id.data, what,
             (int)i, i < n ? (int)mc_json_int(mc_json_item(want, i)) : -1, (int)n, i < got->n ? (int)got->ids[i] : -1,
             (int)got->n);
}

/* SHA-256 as in FIPS 180-4, of messages that fit memory; out: 64 hex digits and a NUL. */
static inline void ts_sha256_block(uint32_t h[8], const uint8_t *p)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
        0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
        0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
        0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
#define TS_ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
    for (size_t i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (TS_ROTATE(w[i - 15], 7) ^ TS_ROTATE(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (TS_ROTATE(w[i - 2], 17) ^ TS_ROTATE(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, h, sizeof v);
    for (size_t i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 =
            v[7] + (TS_ROTATE(e, 6) ^ TS_ROTATE(e, 11) ^ TS_ROTATE(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        const uint32_t t2 = (TS_ROTATE(a, 2) ^ TS_ROTATE(a, 13) ^ TS_ROTATE(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
#undef TS_ROTATE
    for (size_t i = 0; i < 8; i++) h[i] += v[i];
}

static inline void ts_sha256(const uint8_t *data, size_t size, char out[65])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t tail[128] = {0};
    const size_t whole = size / 64 * 64, rest = size - whole, tail_size = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64) ts_sha256_block(h, data + i);
    if (rest > 0) memcpy(tail, data + whole, rest);
    tail[rest] = 0x80;
    for (size_t i = 0; i < 8; i++) tail[tail_size - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    for (size_t i = 0; i < tail_size; i += 64) ts_sha256_block(h, tail + i);
    for (size_t i = 0; i < 8; i++) snprintf(out + 8 * i, 9, "%08x", (unsigned)h[i]);
}

#endif
