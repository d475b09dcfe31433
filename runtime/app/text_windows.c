/* text_windows.c - see text_windows.h. */
#include "runtime/app/text_windows.h"

#include "runtime/app/options.h"

#include <stdlib.h>

enum mc_code text_windows_plan(struct text_windows *t, const struct app_options *o, const struct tokenizer *tok,
                               struct mc_span text, uint64_t windows_max, struct mc_err *err)
{
    memset(t, 0, sizeof *t);
    token_list_init(&t->ids);
    const int32_t bos = tokenizer_special(tok)->bos;
    if (bos == TOKENIZER_NONE) return mc_fail(err, MC_EUNSUPPORTED, 0, "the vocabulary has no begin token");
    enum mc_code code = token_list_add(&t->ids, bos, err);
    if (!code) code = tokenizer_encode(tok, text, TOKENIZER_ALL, NULL, 0, &t->ids, err);
    if (code) return code;
    t->chunk = (uint32_t)opt_int(o, OPT_CHUNK);
    t->stride = opt_is_set(o, OPT_STRIDE) ? (uint32_t)opt_int(o, OPT_STRIDE) : t->chunk;
    if (t->ids.n < t->chunk)
        return mc_fail(err, MC_EARG, 0, "%s has %zu tokens with the begin token, one window needs %u (see --chunk)",
                       opt_text(o, OPT_FILE), t->ids.n, (unsigned)t->chunk);
    uint64_t n = (t->ids.n - t->chunk) / t->stride + 1;
    if (opt_is_set(o, OPT_CHUNKS)) windows_max = (uint64_t)opt_int(o, OPT_CHUNKS);
    if (n > windows_max) n = windows_max;
    t->n = (uint32_t)n;
    t->n_scored = t->chunk - 1 - t->chunk / 2;
    t->window = malloc(t->chunk * sizeof *t->window);
    t->want = calloc(t->chunk, 1);
    if (!t->window || !t->want) return mc_fail(err, MC_ENOMEM, 0, "no memory for a window of %u tokens", (unsigned)t->chunk);
    memset(t->want + t->chunk / 2, 1, t->n_scored);
    return MC_OK;
}

void text_windows_load(struct text_windows *t, uint32_t i)
{
    memcpy(t->window, t->ids.ids + (size_t)i * t->stride, t->chunk * sizeof *t->window);
    t->window[0] = t->ids.ids[0];
}

void text_windows_free(struct text_windows *t)
{
    token_list_deinit(&t->ids);
    free(t->window);
    free(t->want);
}
