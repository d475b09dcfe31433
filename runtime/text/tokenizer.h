/* tokenizer.h - text to token ids and back: byte-level BPE with the vocabulary of a GGUF file.
 *
 * Text is cut at added tokens, the stretches between them into pieces (pretokenize.h), and BPE joins the bytes of each
 * piece. Who may write an added token is the business of the mode; in chat only the template may (TOKENIZER_MASKED).
 * A tokenizer is const after creation and tokenizer_set_stop: any number of threads may use one at the same time. */
#ifndef RUNTIME_TEXT_TOKENIZER_H
#define RUNTIME_TEXT_TOKENIZER_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"
#include "runtime/text/text_buf.h"

struct gguf;
struct tokenizer;

#define TOKENIZER_NONE (-1) /* "no such token" */

enum tokenizer_mode {
    TOKENIZER_ALL,          /* every added token, anywhere: raw prompts */
    TOKENIZER_MASKED,       /* every added token whose bytes are all trusted: chat */
    TOKENIZER_USER_DEFINED, /* only added tokens of type user defined */
    TOKENIZER_PLAIN         /* none: text stays text */
};

/* The numbers are those of tokenizer.ggml.token_type. */
enum tokenizer_type {
    TOKENIZER_NORMAL = 1,
    TOKENIZER_UNKNOWN = 2,
    TOKENIZER_CONTROL = 3,
    TOKENIZER_USER = 4,
    TOKENIZER_UNUSED = 5,
    TOKENIZER_BYTE = 6
};

/* Looked up by text when the file is loaded (bos, eos: by their keys); TOKENIZER_NONE where the vocabulary has no such token.
 */
struct tokenizer_special {
    int32_t bos, eos, user, assistant, think_open, think_close, dsml;
};

/* A growing list of ids. */
struct token_list {
    int32_t *ids;
    size_t n, capacity;
};

void token_list_init(struct token_list *l);
void token_list_deinit(struct token_list *l);
MC_MUST_CHECK enum mc_code token_list_add(struct token_list *l, int32_t id, struct mc_err *err);

/* Reads the vocabulary; `g` may be closed afterwards. Errors name the key: MC_EFORMAT (wrong type, length, range),
 * MC_EUNSUPPORTED (another kind of tokenizer), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code tokenizer_create(const struct gguf *g, struct tokenizer **out, struct mc_err *err);
void tokenizer_destroy(struct tokenizer *t);

/* stop is asked now and then while a text is encoded, by the thread that does it; true ends that with MC_ECANCELLED. NULL (as
 * created): nobody is asked. To be set before several threads use t. */
void tokenizer_set_stop(struct tokenizer *t, bool (*stop)(void *user), void *user);

size_t tokenizer_n_tokens(const struct tokenizer *t);
/* Bytes of the longest token: a text of n bytes has at least n / this many tokens. */
size_t tokenizer_longest(const struct tokenizer *t);
const struct tokenizer_special *tokenizer_special(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t); /* what the file says; false if it says nothing */
enum tokenizer_type tokenizer_type(const struct tokenizer *t, int32_t id);
/* The bytes a token stands for, not always whole code points; empty for an id out of range. Borrowed, no allocation. */
struct mc_span tokenizer_bytes(const struct tokenizer *t, int32_t id);
/* The added token with exactly this text, or TOKENIZER_NONE. */
int32_t tokenizer_find_added(const struct tokenizer *t, struct mc_span text);
/* True for ids that end an answer: eos, and the broken-answer markers bos and user. */
bool tokenizer_ends_answer(const struct tokenizer *t, int32_t id);
/* MC_EUNSUPPORTED naming the first of the seven protocol tokens of chat that the vocabulary lacks. */
MC_MUST_CHECK enum mc_code tokenizer_require_chat(const struct tokenizer *t, struct mc_err *err);

/* Appends the ids of `text` to *out (which on failure holds an unspecified part of them).
 * untrusted: n sorted, disjoint ranges of text bytes, used by TOKENIZER_MASKED only. Invalid UTF-8 is read as one U+FFFD per
 * maximal invalid part. Never adds BOS. O(size log size). Errors: MC_ENOMEM, MC_EARG (text of 1 GiB or more), MC_ECANCELLED. */
MC_MUST_CHECK enum mc_code tokenizer_encode(const struct tokenizer *t, struct mc_span text, enum tokenizer_mode mode,
                                            const struct text_range *untrusted, size_t n_untrusted, struct token_list *out,
                                            struct mc_err *err);
/* A raw prompt: TOKENIZER_ALL, with BOS in front if `add_special` and the file asks for it, but never a second one. */
MC_MUST_CHECK enum mc_code tokenizer_encode_prompt(const struct tokenizer *t, struct mc_span text, bool add_special,
                                                   struct token_list *out, struct mc_err *err);
/* Appends the text of ids as valid UTF-8 (invalid parts become U+FFFD); control tokens are left out if skip_control. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_control, struct text_buf *out);

#endif
