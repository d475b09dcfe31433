/* text_windows.h - a text cut into windows of tokens for perplexity and its kin.
 *
 *   text -> begin token + ids -> windows of `chunk` tokens, `stride` apart, only full ones
 *   window: | begin | t1 ... t(h) | t(h+1) ... t(n-1) |   h = chunk / 2; the tokens right of the bar are scored
 *
 * so the logits of positions h .. n-2 count, and the last token is never run. */
#ifndef RUNTIME_APP_TEXT_WINDOWS_H
#define RUNTIME_APP_TEXT_WINDOWS_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"
#include "runtime/text/tokenizer.h"

struct app_options;

struct text_windows {
    struct token_list ids;               /* of the whole text, begin token in front */
    uint32_t chunk, stride, n, n_scored; /* n windows, n_scored positions of each */
    int32_t *window;                     /* [chunk] the one that was loaded last */
    uint8_t *want;                       /* [chunk] scored positions */
};

/* By --chunk, --stride and --chunks. windows_max: most windows where --chunks is not given. Errors: MC_EARG (text too short),
 * MC_EUNSUPPORTED, MC_ENOMEM. text_windows_free in any case. */
MC_MUST_CHECK enum mc_code text_windows_plan(struct text_windows *t, const struct app_options *o, const struct tokenizer *tok,
                                             struct mc_span text, uint64_t windows_max, struct mc_err *err);
void text_windows_load(struct text_windows *t, uint32_t i);
void text_windows_free(struct text_windows *t);

#endif
