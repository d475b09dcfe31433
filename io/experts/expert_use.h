/* expert_use.h - how often each expert of a model was used lately, kept in a file from one run to the next.
 *
 * The file: "MCEXPUSE", then little-endian u32 version (1), layers, experts, 0, the XXH3 hash of what follows as u64, and a
 * float32 for each expert of each layer: its uses in tokens, old ones counting less (expert_rank.h). */
#ifndef IO_EXPERTS_EXPERT_USE_H
#define IO_EXPERTS_EXPERT_USE_H

#include "platform/base/err.h"

#include <stdint.h>

/* use[n_layers * n_expert] is filled. Errors: MC_EIO (no such file, unreadable), MC_EFORMAT (not such a file, of another model,
 * damaged). */
MC_MUST_CHECK enum mc_code expert_use_load(const char *path, uint32_t n_layers, uint32_t n_expert, float *use,
                                           struct mc_err *err);
/* Replaces the file as a whole. Errors: MC_EIO, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code expert_use_save(const char *path, uint32_t n_layers, uint32_t n_expert, const float *use,
                                           struct mc_err *err);

#endif
