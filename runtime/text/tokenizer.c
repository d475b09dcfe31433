/* tokenizer.c - see tokenizer.h
 *
 *   text ---- added tokens, where the mode lets them match ----> ids
 *        \--- what lies between: pieces -> bytes as ids -> BPE -> ids
 *
 * Trust borders do not cut: a stretch between two matched tokens is cut into pieces as one text, whoever wrote its parts. */
#include "runtime/text/tokenizer.h"

#include "runtime/text/pretokenize.h"
#include "runtime/text/tokenizer_vocab.h"
#include "runtime/text/utf8.h"
#include "runtime/text/utf8_stream.h"

#include <stdlib.h>

#define TEXT_MAX (1u << 30)

void token_list_init(struct token_list *l)
{
    *l = (struct token_list){NULL, 0, 0};
}

void token_list_deinit(struct token_list *l)
{
    free(l->ids);
    token_list_init(l);
}

static enum mc_code reserve(struct token_list *l, size_t more, struct mc_err *err)
{
    if (more <= l->capacity - l->n) return MC_OK;
    size_t want = l->capacity < 64 ? 64 : l->capacity;
    while (want - l->n < more && want <= SIZE_MAX / 16) want *= 2;
    int32_t *const ids = want - l->n < more ? NULL : realloc(l->ids, want * sizeof *ids);
    if (!ids) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu token ids", want);
    l->ids = ids;
    l->capacity = want;
    return MC_OK;
}

enum mc_code token_list_add(struct token_list *l, int32_t id, struct mc_err *err)
{
    const enum mc_code rc = reserve(l, 1, err);
    if (!rc) l->ids[l->n++] = id;
    return rc;
}

enum mc_code tokenizer_create(const struct gguf *g, struct tokenizer **out, struct mc_err *err)
{
    struct tokenizer *const t = calloc(1, sizeof *t);
    if (!t) return mc_fail(err, MC_ENOMEM, 0, "no memory for the tokenizer");
    const enum mc_code rc = tokenizer_load(t, g, err);
    if (rc)
        tokenizer_destroy(t);
    else
        *out = t;
    return rc;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t) return;
    bpe_deinit(&t->bpe);
    free(t->added.tokens);
    free(t->bytes);
    free(t->offsets);
    free(t->types);
    free(t);
}

static bool in_range(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_tokens;
}

size_t tokenizer_n_tokens(const struct tokenizer *t)
{
    return t->n_tokens;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    return t->longest;
}

void tokenizer_set_stop(struct tokenizer *t, bool (*stop)(void *user), void *user)
{
    t->stop = stop;
    t->stop_user = user;
}

const struct tokenizer_special *tokenizer_special(const struct tokenizer *t)
{
    return &t->special;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

enum tokenizer_type tokenizer_type(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) ? (enum tokenizer_type)t->types[id] : TOKENIZER_UNKNOWN;
}

struct mc_span tokenizer_bytes(const struct tokenizer *t, int32_t id)
{
    if (!in_range(t, id)) return (struct mc_span){NULL, 0};
    return (struct mc_span){t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]};
}

int32_t tokenizer_find_added(const struct tokenizer *t, struct mc_span text)
{
    const struct added_token *const a = added_tokens_find(&t->added, text);
    return a ? a->id : TOKENIZER_NONE;
}

bool tokenizer_ends_answer(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (id == t->special.eos || id == t->special.user || id == t->special.bos);
}

enum mc_code tokenizer_require_chat(const struct tokenizer *t, struct mc_err *err)
{
    static const char *const texts[] = {
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (tokenizer_find_added(t, text_span_str(texts[i])) < 0)
            return mc_fail(err, MC_EUNSUPPORTED, 0, "the vocabulary has no token '%s': chat needs a DeepSeek-V4 file",
                           texts[i]);
    return MC_OK;
}

/* One call of encode. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct bpe_scratch scratch;
    struct mc_err *err;
};

static enum mc_code encode_stretch(struct encoder *e, struct mc_span text)
{
    struct pretokenizer p;
    struct mc_span piece;
    pretokenize_begin(&p, text);
    while (pretokenize_next(&p, &piece)) {
        enum mc_code rc = reserve(e->out, piece.size, e->err);
        if (rc) return rc;
        int32_t *const ids = e->out->ids + e->out->n;
        size_t n = piece.size;
        for (size_t i = 0; i < n; i++) ids[i] = e->t->byte_ids[piece.data[i]];
        rc = bpe_encode(&e->t->bpe, ids, &n, &e->scratch, e->err);
        if (rc) return rc;
        e->out->n += n;
    }
    return MC_OK;
}

/* text is valid UTF-8. */
static enum mc_code encode_valid(struct encoder *e, struct mc_span text, enum tokenizer_mode mode,
                                 const struct text_range *untrusted, size_t n_untrusted)
{
    const struct added_tokens *const added = &e->t->added;
    if (mode == TOKENIZER_PLAIN) return encode_stretch(e, text);
    size_t done = 0, pos = 0, range = 0;
    while (pos < text.size) {
        size_t end = text.size; /* a token must end here or before */
        if (mode == TOKENIZER_MASKED) {
            while (range < n_untrusted && untrusted[range].to <= pos) range++;
            if (range < n_untrusted && untrusted[range].from <= pos) {
                pos = untrusted[range].to;
                continue;
            }
            if (range < n_untrusted && untrusted[range].from < end) end = untrusted[range].from;
        }
        const uint8_t b = text.data[pos];
        const struct added_token *const found =
            added->first[b] == added->first[b + 1u]
                ? NULL
                : added_tokens_match(added, text_span(text.data + pos, end - pos), mode == TOKENIZER_USER_DEFINED);
        if (!found) {
            pos++;
            continue;
        }
        enum mc_code rc = encode_stretch(e, text_span(text.data + done, pos - done));
        if (!rc) rc = token_list_add(e->out, found->id, e->err);
        if (rc) return rc;
        pos += found->text.size;
        done = pos;
    }
    return encode_stretch(e, text_span(text.data + done, text.size - done));
}

/* Encodes a copy without the invalid parts; a part that touches untrusted bytes is untrusted. */
static enum mc_code encode_invalid(struct encoder *e, struct mc_span text, enum tokenizer_mode mode,
                                   const struct text_range *untrusted, size_t n_untrusted)
{
    struct text_range *ranges = NULL;
    struct text_buf copy;
    text_buf_init(&copy);
    enum mc_code rc = MC_OK;
    if (n_untrusted > 0) {
        ranges = malloc(n_untrusted * sizeof *ranges);
        if (!ranges) rc = mc_fail(e->err, MC_ENOMEM, 0, "no memory for %zu ranges of text", n_untrusted);
    }
    if (!rc) utf8_replace_invalid(text, &copy, untrusted, ranges, n_untrusted);
    if (!rc) rc = text_buf_check(&copy, e->err);
    if (!rc) rc = encode_valid(e, text_buf_span(&copy), mode, ranges, n_untrusted);
    text_buf_deinit(&copy);
    free(ranges);
    return rc;
}

enum mc_code tokenizer_encode(const struct tokenizer *t, struct mc_span text, enum tokenizer_mode mode,
                              const struct text_range *untrusted, size_t n_untrusted, struct token_list *out,
                              struct mc_err *err)
{
    if (text.size >= TEXT_MAX) return mc_fail(err, MC_EARG, 0, "a text of %zu bytes is too long to tokenize", text.size);
    if (text.size == 0) return MC_OK;
    if (mode != TOKENIZER_MASKED) n_untrusted = 0;
    struct encoder e = {.t = t, .out = out, .err = err};
    bpe_scratch_init(&e.scratch);
    e.scratch.stop = t->stop;
    e.scratch.stop_user = t->stop_user;
    const enum mc_code rc = utf8_is_valid(text) ? encode_valid(&e, text, mode, untrusted, n_untrusted)
                                                : encode_invalid(&e, text, mode, untrusted, n_untrusted);
    bpe_scratch_deinit(&e.scratch);
    return rc;
}

enum mc_code tokenizer_encode_prompt(const struct tokenizer *t, struct mc_span text, bool add_special, struct token_list *out,
                                     struct mc_err *err)
{
    const size_t start = out->n;
    const int32_t bos = t->special.bos;
    if (add_special && t->add_bos && bos >= 0) {
        const enum mc_code rc = token_list_add(out, bos, err);
        if (rc) return rc;
    }
    const size_t first = out->n;
    const enum mc_code rc = tokenizer_encode(t, text, TOKENIZER_ALL, NULL, 0, out, err);
    if (!rc && first > start && out->n > first && out->ids[first] == bos) { /* the text brought its own */
        out->n--;
        memmove(out->ids + start, out->ids + first, (out->n - start) * sizeof *out->ids);
    }
    return rc;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_control, struct text_buf *out)
{
    struct utf8_stream stream;
    utf8_stream_init(&stream);
    for (size_t i = 0; i < n; i++)
        if (!skip_control || tokenizer_type(t, ids[i]) != TOKENIZER_CONTROL)
            utf8_stream_feed(&stream, tokenizer_bytes(t, ids[i]), out);
    utf8_stream_flush(&stream, out);
}
