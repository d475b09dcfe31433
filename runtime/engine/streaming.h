/* streaming.h - routed experts that are read from the file while the model runs: what they take, and opening their cache. */
#ifndef RUNTIME_ENGINE_STREAMING_H
#define RUNTIME_ENGINE_STREAMING_H

#include "io/experts/expert_cache.h"
#include "runtime/engine/engine.h"
#include "runtime/model/bind.h"

struct workers;

/* The routed experts of a model as the cache wants them: fills `layers` [n_layer], and of out layers, n_layers, n_expert and
 * n_used. False where they cannot be streamed: a matrix of them is not in the file as it is. */
bool streaming_describe(const struct model *m, const struct gguf *g, const struct weights *w, struct expert_layer *layers,
                        struct expert_cache_options *out);

/* Creates the cache, makes its memory present by the whole team and finds the best way of reading; *touch_s: how long the
 * memory took. Errors: those of expert_cache_create, os_region_touch and expert_cache_start. */
MC_MUST_CHECK enum mc_code streaming_open(const struct expert_cache_options *opt, const struct gguf *g, const struct weights *w,
                                          struct workers *team, struct expert_cache **out, double *touch_s, struct mc_err *err);

/* With the uses that an earlier run kept at `path`: the most used experts are read. A file that is missing or worthless is
 * no error (a line in the log). Errors: MC_ECANCELLED. */
MC_MUST_CHECK enum mc_code streaming_recall(struct expert_cache *c, const char *path, const struct model_shape *s,
                                            engine_progress_fn progress, void *user, struct mc_err *err);
/* Keeps them; what hinders is a line in the log. */
void streaming_keep(const struct expert_cache *c, const char *path, const struct model_shape *s);

#endif
