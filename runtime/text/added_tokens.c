/* added_tokens.c - see added_tokens.h
 *
 * The sorted list serves as a trie: the tokens that share a prefix are neighbours, the shortest of them first, so a match
 * narrows a range of the list byte by byte. */
#include "runtime/text/added_tokens.h"

#include "runtime/text/text_buf.h"

#include <stdlib.h>

static int compare(const void *pa, const void *pb)
{
    const struct added_token *const a = pa, *const b = pb;
    const size_t n = a->text.size < b->text.size ? a->text.size : b->text.size;
    const int d = memcmp(a->text.data, b->text.data, n);
    if (d) return d;
    if (a->text.size != b->text.size) return a->text.size < b->text.size ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

void added_tokens_sort(struct added_tokens *a)
{
    size_t kept = 0;
    if (a->n > 0) qsort(a->tokens, a->n, sizeof *a->tokens, compare);
    for (size_t i = 0; i < a->n; i++)
        if (kept == 0 || !text_same(a->tokens[kept - 1].text, a->tokens[i].text)) a->tokens[kept++] = a->tokens[i];
    a->n = kept;
    size_t i = 0;
    for (size_t b = 0; b <= 256; b++) {
        while (i < a->n && a->tokens[i].text.data[0] < b) i++;
        a->first[b] = i;
    }
}

/* First of tokens[low..high), which agree before byte `at`, whose byte there is >= b; a text that ends before comes first. */
static size_t lower_bound(const struct added_tokens *a, size_t low, size_t high, size_t at, unsigned b)
{
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const struct mc_span t = a->tokens[mid].text;
        if (t.size <= at || t.data[at] < b)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct added_token *added_tokens_match(const struct added_tokens *a, struct mc_span text, bool user_only)
{
    const struct added_token *best = NULL;
    if (text.size == 0) return NULL;
    size_t low = a->first[text.data[0]], high = a->first[text.data[0] + 1u];
    for (size_t at = 1; low < high; at++) {
        const struct added_token *const t = &a->tokens[low];
        if (t->text.size == at && (t->is_user || !user_only)) best = t;
        if (at == text.size) break;
        const unsigned b = text.data[at];
        low = lower_bound(a, low, high, at, b);
        high = lower_bound(a, low, high, at, b + 1);
    }
    return best;
}

const struct added_token *added_tokens_find(const struct added_tokens *a, struct mc_span text)
{
    const struct added_token *const t = added_tokens_match(a, text, false);
    return t && t->text.size == text.size ? t : NULL;
}
