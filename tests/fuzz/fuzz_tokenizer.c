/* fuzz_tokenizer.c - any bytes, any mode, any mask: no crash, ids in range, and valid UTF-8 comes back as it was.
 *
 * Input: one byte for the mode, one byte n_ranges (of 8), n_ranges pairs of step sizes for the untrusted ranges, then the text.
 * The vocabulary is that of the tiny model, loaded once. */
#include "io/gguf/gguf.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct tokenizer *vocabulary(void)
{
    static struct tokenizer *t;
    struct gguf *g = NULL;
    if (t) return t;
    if (gguf_open(MC_MODELS "/tiny-dsv4.gguf", &g, NULL) || tokenizer_create(g, &t, NULL)) abort();
    gguf_close(g);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tokenizer *const t = vocabulary();
    struct text_range ranges[7];
    size_t n_ranges = 0, at = 2, pos = 0;
    if (size < 2) return 0;
    const enum tokenizer_mode mode = (enum tokenizer_mode)(data[0] % 4);
    for (; n_ranges < data[1] % 8u && at + 2 <= size; at += 2) {
        ranges[n_ranges].from = pos += data[at];
        ranges[n_ranges++].to = pos += data[at + 1];
    }
    const struct mc_span text = text_span(data + at, size - at);
    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].from > text.size) ranges[i].from = text.size;
        if (ranges[i].to > text.size) ranges[i].to = text.size;
    }
    struct token_list ids;
    struct text_buf back, want;
    token_list_init(&ids);
    text_buf_init(&back);
    text_buf_init(&want);
    if (tokenizer_encode(t, text, mode, ranges, n_ranges, &ids, NULL)) abort();
    for (size_t i = 0; i < ids.n; i++)
        if (tokenizer_bytes(t, ids.ids[i]).size == 0) abort();
    tokenizer_decode(t, ids.ids, ids.n, false, &back);
    utf8_replace_invalid(text, &want, NULL, NULL, 0);
    if (!text_same(text_buf_span(&want), text_buf_span(&back))) abort();
    if (utf8_is_valid(text) && !text_same(text, text_buf_span(&back))) abort();
    token_list_deinit(&ids);
    text_buf_deinit(&back);
    text_buf_deinit(&want);
    return 0;
}
