/* tokenizer_vocab.c - from the metadata of a GGUF file to tables; nothing in the file is believed.
 *
 * The file writes ordinary tokens and merges in GPT-2's printable alphabet: bytes 21-7E, A1-AC, AE-FF stand for the code point
 * of the same number, the other 68, in order, for U+0100..U+0143. Added tokens (control, user defined) are plain UTF-8 and
 * take no part in merges: else ordinary text could grow into a marker. Texts are looked up as the file spells them, in a
 * table that lives only while loading; the tokenizer keeps raw bytes and ids. */
#include "runtime/text/tokenizer_vocab.h"

#include "io/gguf/gguf.h"
#include "platform/base/log.h"
#include "runtime/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>

#define TOKENS_MAX      (1u << 24)
#define TOKEN_BYTES_MAX 4096u /* the longest real one has 128 */

#define KEY_MODEL  "tokenizer.ggml.model"
#define KEY_PRE    "tokenizer.ggml.pre"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"
#define KEY_MERGES "tokenizer.ggml.merges"

static const char TEXT_BOS[] = "<｜begin▁of▁sentence｜>";
static const char TEXT_EOS[] = "<｜end▁of▁sentence｜>";

/* What is needed while loading. */
struct loader {
    const struct gguf *g;
    struct tokenizer *t;
    struct mc_err *err;
    struct mc_span *texts; /* as in the file */
    bool has_types;
    int32_t *slots; /* texts of ordinary tokens -> id, -1 free */
    size_t slot_mask;
    uint8_t byte_of[0x144]; /* the printable alphabet, back to bytes ... */
    bool is_mapped[0x144];  /* ... where there is one */
};

static uint32_t hash_text(const void *a, size_t n_a, const void *b, size_t n_b)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_a; i++) h = (h ^ ((const uint8_t *)a)[i]) * 0x100000001B3u;
    for (size_t i = 0; i < n_b; i++) h = (h ^ ((const uint8_t *)b)[i]) * 0x100000001B3u;
    return (uint32_t)(h ^ h >> 32);
}

/* The slot of the ordinary token whose text is a followed by b, or the free slot where it would stand. */
static size_t find_slot(const struct loader *l, struct mc_span a, struct mc_span b)
{
    size_t i = hash_text(a.data, a.size, b.data, b.size) & l->slot_mask;
    for (; l->slots[i] >= 0; i = (i + 1) & l->slot_mask) {
        const struct mc_span have = l->texts[l->slots[i]];
        if (have.size == a.size + b.size && memcmp(have.data, a.data, a.size) == 0 &&
            memcmp(have.data + a.size, b.data, b.size) == 0)
            break;
    }
    return i;
}

static int32_t find_text(const struct loader *l, struct mc_span a, struct mc_span b)
{
    return l->slots[find_slot(l, a, b)];
}

static bool is_added(uint8_t type)
{
    return type == TOKENIZER_CONTROL || type == TOKENIZER_USER;
}

static void fill_alphabet(struct loader *l)
{
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        const bool same = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        const unsigned cp = same ? b : next++;
        l->byte_of[cp] = (uint8_t)b;
        l->is_mapped[cp] = true;
    }
}

/* The array under `key`; NULL without an error if it is missing. */
static enum mc_code find_array(struct loader *l, const char *key, bool of_strings, const struct gguf_value **out)
{
    const struct gguf_value *const v = gguf_find(l->g, key);
    *out = v;
    if (!v) return MC_OK;
    if (v->type != GGUF_ARRAY || (v->item_type == GGUF_STRING) != of_strings)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: %s is %s%s, expected an array of %s", gguf_path(l->g), key,
                       v->type == GGUF_ARRAY ? "an array of " : "",
                       gguf_type_name(v->type == GGUF_ARRAY ? v->item_type : v->type), of_strings ? "strings" : "integers");
    return MC_OK;
}

static enum mc_code check_kind(struct loader *l)
{
    struct mc_span model;
    const enum mc_code rc = gguf_get_string(l->g, KEY_MODEL, &model, l->err);
    if (rc) return rc;
    if (!text_is(model, "gpt2"))
        return mc_fail(l->err, MC_EUNSUPPORTED, 0, "%s: " KEY_MODEL " is '%.*s', only 'gpt2' (byte-level BPE) is supported",
                       gguf_path(l->g), (int)(model.size < 64 ? model.size : 64), (const char *)model.data);
    return MC_OK;
}

/* After the added tokens are known: without the key, the protocol tokens must vouch for the file. */
static enum mc_code check_pre(struct loader *l)
{
    if (!gguf_find(l->g, KEY_PRE)) {
        const struct tokenizer_special *const s = &l->t->special;
        if (s->user < 0 || s->assistant < 0 || s->bos < 0)
            return mc_fail(l->err, MC_EUNSUPPORTED, 0,
                           "%s: " KEY_PRE " is missing and the vocabulary is not that of DeepSeek-V4", gguf_path(l->g));
        mc_log(MC_LOG_WARN, "tokenizer: key=" KEY_PRE " missing, taken as joyai-llm");
        return MC_OK;
    }
    struct mc_span pre;
    const enum mc_code rc = gguf_get_string(l->g, KEY_PRE, &pre, l->err);
    if (rc) return rc;
    if (!text_is(pre, "joyai-llm") && !text_is(pre, "deepseek-v3"))
        return mc_fail(l->err, MC_EUNSUPPORTED, 0, "%s: " KEY_PRE " is '%.*s', expected 'joyai-llm' or 'deepseek-v3'",
                       gguf_path(l->g), (int)(pre.size < 64 ? pre.size : 64), (const char *)pre.data);
    return MC_OK;
}

static enum mc_code read_texts(struct loader *l)
{
    struct tokenizer *const t = l->t;
    const struct gguf_value *v;
    enum mc_code rc = find_array(l, KEY_TOKENS, true, &v);
    if (rc) return rc;
    if (!v) return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TOKENS " is missing; the file has no vocabulary", gguf_path(l->g));
    if (v->count == 0 || v->count >= TOKENS_MAX)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TOKENS " has %" PRIu64 " entries, expected 1 to %u", gguf_path(l->g),
                       v->count, TOKENS_MAX - 1);
    const struct gguf_tensor *const embd = gguf_tensor_find(l->g, "token_embd.weight");
    if (embd && embd->ne[1] != v->count)
        return mc_fail(l->err, MC_EFORMAT, 0,
                       "%s: " KEY_TOKENS " has %" PRIu64 " entries, token_embd.weight has %" PRIu64 " rows", gguf_path(l->g),
                       v->count, embd->ne[1]);
    t->n_tokens = (size_t)v->count;
    l->texts = calloc(t->n_tokens, sizeof *l->texts);
    if (!l->texts) return mc_fail(l->err, MC_ENOMEM, 0, "no memory for %zu tokens", t->n_tokens);
    size_t pos = 0, i = 0;
    for (; i < t->n_tokens && gguf_next_string(v, &pos, &l->texts[i]); i++)
        if (l->texts[i].size > TOKEN_BYTES_MAX)
            return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TOKENS "[%zu] has %zu bytes, at most %u are accepted",
                           gguf_path(l->g), i, l->texts[i].size, TOKEN_BYTES_MAX);
    if (i < t->n_tokens)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TOKENS " ends after %zu of %zu entries", gguf_path(l->g), i,
                       t->n_tokens);
    return MC_OK;
}

static enum mc_code read_types(struct loader *l)
{
    struct tokenizer *const t = l->t;
    t->types = malloc(t->n_tokens);
    if (!t->types) return mc_fail(l->err, MC_ENOMEM, 0, "no memory for %zu token types", t->n_tokens);
    memset(t->types, TOKENIZER_NORMAL, t->n_tokens);
    const struct gguf_value *v;
    const enum mc_code rc = find_array(l, KEY_TYPES, false, &v);
    if (rc || !v) return rc;
    if (v->count != t->n_tokens)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TYPES " has %" PRIu64 " entries, " KEY_TOKENS " has %zu",
                       gguf_path(l->g), v->count, t->n_tokens);
    l->has_types = true;
    for (size_t i = 0; i < t->n_tokens; i++) {
        int64_t type;
        const enum mc_code item_rc = gguf_item_i64(l->g, v, i, &type, l->err);
        if (item_rc) return item_rc;
        if (type < TOKENIZER_NORMAL || type > TOKENIZER_BYTE)
            return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TYPES "[%zu] is %" PRId64 ", expected 1 to 6", gguf_path(l->g), i,
                           type);
        t->types[i] = (uint8_t)type;
    }
    return MC_OK;
}

/* Of equal texts the lowest id stays. */
static enum mc_code index_texts(struct loader *l)
{
    size_t n = 64;
    while (n < 2 * l->t->n_tokens) n *= 2;
    l->slots = malloc(n * sizeof *l->slots);
    if (!l->slots) return mc_fail(l->err, MC_ENOMEM, 0, "no memory to index %zu tokens", l->t->n_tokens);
    l->slot_mask = n - 1;
    memset(l->slots, 0xFF, n * sizeof *l->slots);
    for (size_t i = 0; i < l->t->n_tokens; i++) {
        if (is_added(l->t->types[i])) continue;
        const size_t slot = find_slot(l, l->texts[i], text_span("", 0));
        if (l->slots[slot] < 0) l->slots[slot] = (int32_t)i;
    }
    return MC_OK;
}

static enum mc_code find_byte_tokens(struct loader *l)
{
    for (unsigned cp = 0; cp < ARRAY_LEN(l->byte_of); cp++) {
        if (!l->is_mapped[cp]) continue;
        const uint8_t utf8[2] = {(uint8_t)(0xC0 | cp >> 6), (uint8_t)(0x80 | (cp & 0x3F))};
        const uint8_t ascii = (uint8_t)cp;
        const struct mc_span text = cp < 0x80 ? text_span(&ascii, 1) : text_span(utf8, 2);
        const int32_t id = find_text(l, text, text_span("", 0));
        if (id < 0)
            return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_TOKENS " has no token for the byte 0x%02X", gguf_path(l->g),
                           l->byte_of[cp]);
        l->t->byte_ids[l->byte_of[cp]] = id;
    }
    return MC_OK;
}

/* "left right" -> ids; false if it is no such text or one of the three tokens is not known. */
static bool parse_merge(const struct loader *l, struct mc_span text, struct bpe_merge *m)
{
    const uint8_t *const space = text.size ? memchr(text.data, ' ', text.size) : NULL;
    if (!space || space == text.data || space == text.data + text.size - 1) return false;
    const struct mc_span left = text_span(text.data, (size_t)(space - text.data));
    const struct mc_span right = text_span(space + 1, text.size - left.size - 1);
    if (memchr(right.data, ' ', right.size)) return false;
    m->left = find_text(l, left, text_span("", 0));
    m->right = find_text(l, right, text_span("", 0));
    m->result = find_text(l, left, right);
    return m->left >= 0 && m->right >= 0 && m->result >= 0;
}

/* Without types, what bytes and merges cannot make is control. */
static enum mc_code read_merges(struct loader *l)
{
    struct tokenizer *const t = l->t;
    const struct gguf_value *v;
    enum mc_code rc = find_array(l, KEY_MERGES, true, &v);
    if (rc) return rc;
    if (!v || v->count >= TOKENS_MAX)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: " KEY_MERGES " %s", gguf_path(l->g),
                       v ? "has too many entries" : "is missing");
    rc = bpe_init(&t->bpe, (size_t)v->count, l->err);
    if (rc) return rc;
    if (!l->has_types) {
        memset(t->types, TOKENIZER_CONTROL, t->n_tokens);
        for (size_t b = 0; b < 256; b++) t->types[t->byte_ids[b]] = TOKENIZER_NORMAL;
    }
    size_t pos = 0, n_skipped = 0;
    uint32_t rank = 0;
    for (struct mc_span text; rank < v->count && gguf_next_string(v, &pos, &text); rank++) {
        struct bpe_merge m = {.rank = rank};
        if (!parse_merge(l, text, &m) || !bpe_add(&t->bpe, m))
            n_skipped++;
        else if (!l->has_types)
            t->types[m.result] = TOKENIZER_NORMAL;
    }
    if (n_skipped > 0) mc_log(MC_LOG_WARN, "tokenizer: key=" KEY_MERGES " skipped=%zu of=%" PRIu64, n_skipped, v->count);
    return MC_OK;
}

/* Appends the bytes that an ordinary token's text stands for; a text outside the alphabet stands for itself. */
static size_t unmap(const struct loader *l, struct mc_span text, uint8_t *out)
{
    size_t n = 0;
    for (size_t i = 0, size; i < text.size; i += size) {
        uint32_t cp;
        const enum utf8_status status = utf8_read(text.data + i, text.size - i, &cp, &size);
        if (status != UTF8_VALID || cp >= ARRAY_LEN(l->byte_of) || !l->is_mapped[cp]) {
            memcpy(out, text.data, text.size);
            return text.size;
        }
        out[n++] = l->byte_of[cp];
    }
    return n;
}

static enum mc_code store_bytes(struct loader *l)
{
    struct tokenizer *const t = l->t;
    size_t total = 1; /* bytes never grow by mapping back; at most 2^24 * 4096 */
    for (size_t i = 0; i < t->n_tokens; i++) total += l->texts[i].size;
    t->offsets = malloc((t->n_tokens + 1) * sizeof *t->offsets);
    t->bytes = total <= UINT32_MAX ? malloc(total) : NULL;
    if (!t->offsets || !t->bytes) return mc_fail(l->err, MC_ENOMEM, 0, "no memory for %zu bytes of tokens", total);
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        t->offsets[i] = (uint32_t)n;
        if (!is_added(t->types[i])) {
            n += unmap(l, l->texts[i], t->bytes + n);
        } else if (l->texts[i].size > 0) {
            memcpy(t->bytes + n, l->texts[i].data, l->texts[i].size);
            n += l->texts[i].size;
        }
        if (n - t->offsets[i] > t->longest) t->longest = n - t->offsets[i];
    }
    t->offsets[t->n_tokens] = (uint32_t)n;
    return MC_OK;
}

static enum mc_code index_added(struct loader *l)
{
    struct tokenizer *const t = l->t;
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++) n += is_added(t->types[i]);
    t->added.tokens = malloc((n + 1) * sizeof *t->added.tokens);
    if (!t->added.tokens) return mc_fail(l->err, MC_ENOMEM, 0, "no memory for %zu added tokens", n);
    for (size_t i = 0; i < t->n_tokens; i++) {
        const struct mc_span text = tokenizer_bytes(t, (int32_t)i);
        if (is_added(t->types[i]) && text.size > 0)
            t->added.tokens[t->added.n++] = (struct added_token){text, (int32_t)i, t->types[i] == TOKENIZER_USER};
    }
    added_tokens_sort(&t->added);
    return MC_OK;
}

/* The id under `key`; without the key, the token with this text. */
static enum mc_code read_id(struct loader *l, const char *key, const char *text, int32_t *out)
{
    uint64_t id;
    if (!gguf_find(l->g, key)) {
        *out = tokenizer_find_added(l->t, text_span_str(text));
        return MC_OK;
    }
    const enum mc_code rc = gguf_get_u64(l->g, key, &id, l->err);
    if (rc) return rc;
    if (id >= l->t->n_tokens)
        return mc_fail(l->err, MC_EFORMAT, 0, "%s: %s is %" PRIu64 ", the vocabulary has %zu tokens", gguf_path(l->g), key, id,
                       l->t->n_tokens);
    *out = (int32_t)id;
    return MC_OK;
}

static enum mc_code read_special(struct loader *l)
{
    struct tokenizer *const t = l->t;
    struct tokenizer_special *const s = &t->special;
    s->user = tokenizer_find_added(t, text_span_str("<｜User｜>"));
    s->assistant = tokenizer_find_added(t, text_span_str("<｜Assistant｜>"));
    s->think_open = tokenizer_find_added(t, text_span_str("<think>"));
    s->think_close = tokenizer_find_added(t, text_span_str("</think>"));
    s->dsml = tokenizer_find_added(t, text_span_str("｜DSML｜"));
    enum mc_code rc = read_id(l, "tokenizer.ggml.bos_token_id", TEXT_BOS, &s->bos);
    if (!rc) rc = read_id(l, "tokenizer.ggml.eos_token_id", TEXT_EOS, &s->eos);
    if (!rc) rc = gguf_get_bool_or(l->g, "tokenizer.ggml.add_bos_token", false, &t->add_bos, l->err);
    return rc;
}

enum mc_code tokenizer_load(struct tokenizer *t, const struct gguf *g, struct mc_err *err)
{
    struct loader l = {.g = g, .t = t, .err = err};
    fill_alphabet(&l);
    enum mc_code rc = check_kind(&l);
    if (!rc) rc = read_texts(&l);
    if (!rc) rc = read_types(&l);
    if (!rc) rc = index_texts(&l);
    if (!rc) rc = find_byte_tokens(&l);
    if (!rc) rc = read_merges(&l);
    if (!rc) rc = store_bytes(&l);
    if (!rc) rc = index_added(&l);
    if (!rc) rc = read_special(&l);
    if (!rc) rc = check_pre(&l);
    free(l.texts);
    free(l.slots);
    return rc;
}
