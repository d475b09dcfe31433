/* synth_vocab.c - a byte-level vocabulary of any size with merges that build every token. See synth.h.
 *
 *   0..2 begin, end, padding | 3..258 bytes | merges: common English, then all short letter combinations | 5 protocol tokens
 *
 * Merges are added in an order in which both halves already exist. A vocabulary larger than the combinations (about 490 000) is
 * filled up with unused tokens. */
#include "runtime/app/synth.h"

#include "platform/base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define BAR    "\xEF\xBD\x9C" /* U+FF5C */
#define BLOCK_ "\xE2\x96\x81" /* U+2581 */
#define SPACE  "\xC4\xA0"     /* U+0120, the stand-in for a space */

static const char *const first[] = {"<" BAR "begin" BLOCK_ "of" BLOCK_ "sentence" BAR ">",
                                    "<" BAR "end" BLOCK_ "of" BLOCK_ "sentence" BAR ">", "<" BAR BLOCK_ "pad" BLOCK_ BAR ">"};
static const struct {
    const char *text;
    int type;
} last[] = {
    {"<" BAR "User" BAR ">", 3}, {"<" BAR "Assistant" BAR ">", 3}, {"<think>", 4}, {"</think>", 4}, {BAR "DSML" BAR, 4}};

static const char *const common[][2] = {
    {"t", "h"},    {"th", "e"}, {SPACE, "the"}, {"i", "n"},    {"in", "g"},  {"a", "n"},   {"an", "d"},  {SPACE, "and"},
    {"o", "n"},    {"e", "r"},  {"r", "e"},     {"e", "n"},    {SPACE, "a"}, {SPACE, "t"}, {SPACE, "o"}, {"o", "f"},
    {SPACE, "of"}, {"i", "s"},  {SPACE, "is"},  {"o", "r"},    {"a", "t"},   {"e", "s"},   {SPACE, "w"}, {SPACE, "s"},
    {"l", "l"},    {"o", "u"},  {SPACE, "in"},  {SPACE, "to"}, {"t", "o"}};

/* The tokens that exist, by text. */
struct set {
    const struct text_buf *tokens;
    size_t *offs; /* into tokens, of the u64 length; SIZE_MAX is empty */
    size_t mask;
};

struct builder {
    struct synth_vocab *v;
    struct set set;
    uint32_t room; /* tokens that may still be added */
};

static struct mc_span token_at(const struct text_buf *tokens, size_t off)
{
    return text_span(tokens->data + off + 8, (size_t)mc_load_u64(tokens->data + off));
}

/* The slot of this text, or the empty one where it belongs. */
static size_t *set_slot(const struct set *s, struct mc_span text)
{
    size_t i = (size_t)mc_hash64(text.data, text.size, 0) & s->mask;
    while (s->offs[i] != SIZE_MAX && !text_same(token_at(s->tokens, s->offs[i]), text)) i = (i + 1) & s->mask;
    return &s->offs[i];
}

static void add_string(struct text_buf *b, struct mc_span text)
{
    uint8_t size[8];
    mc_store_u64(size, text.size);
    text_buf_add(b, size, sizeof size);
    text_buf_add_span(b, text);
}

static void add_token(struct builder *b, struct mc_span text, int type)
{
    uint8_t bytes[4];
    mc_store_u32(bytes, (uint32_t)type);
    const size_t off = b->v->tokens.size;
    add_string(&b->v->tokens, text);
    text_buf_add(&b->v->types, bytes, sizeof bytes);
    if (!b->v->tokens.failed) *set_slot(&b->set, text) = off;
    b->v->n_tokens++;
}

/* Adds the merge of two tokens if both exist and their union does not. */
static void add_merge(struct builder *b, const char *left, const char *right)
{
    char both[32];
    const size_t nl = strlen(left), nr = strlen(right);
    if (b->room == 0 || b->v->tokens.failed) return;
    memcpy(both, left, nl);
    memcpy(both + nl, right, nr);
    const struct mc_span text = text_span(both, nl + nr);
    if (*set_slot(&b->set, text) != SIZE_MAX || *set_slot(&b->set, text_span_str(left)) == SIZE_MAX ||
        *set_slot(&b->set, text_span_str(right)) == SIZE_MAX)
        return;
    add_token(b, text, 1);
    memmove(both + nl + 1, both + nl, nr);
    both[nl] = ' ';
    add_string(&b->v->merges, text_span(both, nl + 1 + nr));
    b->v->n_merges++;
    b->room--;
}

/* The printable stand-in of each byte (byte-level BPE): most ASCII and Latin-1 stand for themselves, the others are counted
 * from 256. */
static void add_bytes(struct builder *b)
{
    unsigned extra = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        const unsigned c = itself ? byte : 256 + extra++;
        const char text[2] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6), (char)(0x80 | (c & 63))};
        add_token(b, text_span(text, c < 0x80 ? 1 : 2), 1);
    }
}

static const char *letter(char buf[2], int c)
{
    buf[0] = (char)c;
    buf[1] = '\0';
    return buf;
}

static void add_merges(struct builder *b)
{
    char x[2], y[2], pair[8], tail[4];
    for (size_t i = 0; i < ARRAY_LEN(common); i++) add_merge(b, common[i][0], common[i][1]);
    for (int i = 'a'; i <= 'z'; i++) add_merge(b, SPACE, letter(x, i));
    for (int i = 'a'; i <= 'z'; i++)
        for (int k = 'a'; k <= 'z'; k++) add_merge(b, letter(x, i), letter(y, k));
    for (int i = 'a' - 1; i <= 'z'; i++) /* three: the first may be a space */
        for (int k = 'a'; k <= 'z'; k++)
            for (int m = 'a'; m <= 'z'; m++) {
                snprintf(pair, sizeof pair, "%s%c", i < 'a' ? SPACE : letter(x, i), k);
                add_merge(b, pair, letter(y, m));
            }
    for (int i = 33; i < 128; i++) /* all printable pairs; 127 is the space here */
        for (int k = 33; k < 128; k++) add_merge(b, i == 127 ? SPACE : letter(x, i), k == 127 ? SPACE : letter(y, k));
    for (long n = 0; n < 26L * 26 * 26 * 26 && b->room; n++) { /* four */
        snprintf(pair, sizeof pair, "%c%c", (char)('a' + n / 17576), (char)('a' + n / 676 % 26));
        snprintf(tail, sizeof tail, "%c%c", (char)('a' + n / 26 % 26), (char)('a' + n % 26));
        add_merge(b, pair, tail);
    }
}

enum mc_code synth_vocab_create(struct synth_vocab *v, uint32_t n, struct mc_err *err)
{
    memset(v, 0, sizeof *v);
    text_buf_init(&v->tokens);
    text_buf_init(&v->types);
    text_buf_init(&v->merges);
    struct builder b = {.v = v, .room = n - SYNTH_VOCAB_MIN};
    size_t slots = 1024;
    while (slots < 2 * (size_t)n) slots *= 2;
    b.set = (struct set){&v->tokens, malloc(slots * sizeof(size_t)), slots - 1};
    if (!b.set.offs) return mc_fail(err, MC_ENOMEM, 0, "no memory for a vocabulary of %u tokens", (unsigned)n);
    for (size_t i = 0; i < slots; i++) b.set.offs[i] = SIZE_MAX;
    for (size_t i = 0; i < ARRAY_LEN(first); i++) add_token(&b, text_span_str(first[i]), 3);
    add_bytes(&b);
    add_merges(&b);
    for (char name[32]; b.room > 0; b.room--) {
        snprintf(name, sizeof name, "[unused%u]", (unsigned)b.room);
        add_token(&b, text_span_str(name), 5);
    }
    for (size_t i = 0; i < ARRAY_LEN(last); i++) add_token(&b, text_span_str(last[i].text), last[i].type);
    free(b.set.offs);
    enum mc_code code = text_buf_check(&v->tokens, err);
    if (!code) code = text_buf_check(&v->types, err);
    return code ? code : text_buf_check(&v->merges, err);
}

void synth_vocab_destroy(struct synth_vocab *v)
{
    text_buf_deinit(&v->tokens);
    text_buf_deinit(&v->types);
    text_buf_deinit(&v->merges);
}
