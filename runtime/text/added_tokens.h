/* added_tokens.h - tokens that are found in the text as it stands, before it is cut into pieces. */
#ifndef RUNTIME_TEXT_ADDED_TOKENS_H
#define RUNTIME_TEXT_ADDED_TOKENS_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

struct added_token {
    struct mc_span text; /* borrowed from the tokenizer's bytes, not empty */
    int32_t id;
    bool is_user; /* of type user defined, else control */
};

/* Sorted by text; first[b] .. first[b + 1] are those whose first byte is b. Const after added_tokens_sort. */
struct added_tokens {
    struct added_token *tokens;
    size_t n;
    size_t first[257];
};

/* Sorts tokens[0..n) and drops all but the lowest id of equal texts. */
void added_tokens_sort(struct added_tokens *a);
/* The token with this text, or NULL. */
const struct added_token *added_tokens_find(const struct added_tokens *a, struct mc_span text);
/* The longest token that is a prefix of `text`; with user_only, of the user defined ones. NULL if there is none. */
const struct added_token *added_tokens_match(const struct added_tokens *a, struct mc_span text, bool user_only);

#endif
