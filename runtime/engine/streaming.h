/* streaming.h - routed experts that are read from the file while the model runs: how engine_open comes to their cache, and what
 * is told of it. */
#ifndef RUNTIME_ENGINE_STREAMING_H
#define RUNTIME_ENGINE_STREAMING_H

#include "io/experts/expert_cache.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/resident.h"

/* Before anything is resident: what the options ask for and what streaming would take, into ro->streaming and eo. layers
 * [n_layer] must live as long as eo. Errors: MC_EARG. */
MC_MUST_CHECK enum mc_code streaming_wish(const struct engine_options *opt, struct engine *e, struct expert_layer *layers,
                                          struct expert_cache_options *eo, struct resident_options *ro, struct mc_err *err);

/* When all the others are resident and e->resident.streams: creates e->experts, makes its memory present by the whole team,
 * finds the best way of reading, and reads what earlier runs used most (opt->keep_use; a kept file that is missing or worthless
 * is a line in the log). Errors: those of expert_cache_create, os_region_touch and expert_cache_start, MC_ECANCELLED;
 * streaming_end undoes it in any case. */
MC_MUST_CHECK enum mc_code streaming_start(const struct engine_options *opt, struct expert_cache_options *eo, bool asked,
                                           struct engine *e, struct mc_err *err);
/* Keeps the uses of this run, and lets the cache go. */
void streaming_end(struct engine *e);

#endif
