/* dials_store.h - what `dials` has measured, kept for each model: DIALS-HASH.json in the cache folder, where HASH stands for
 * the content of the model file (its size and samples of its bytes), so that another file of the same name has none. */
#ifndef RUNTIME_APP_DIALS_STORE_H
#define RUNTIME_APP_DIALS_STORE_H

#include "platform/base/json_out.h"
#include "runtime/control/settings.h"

struct gguf;
struct dials_store;

/* Errors: MC_ENOMEM, MC_EIO (a part of the model cannot be read; no cache folder). */
MC_MUST_CHECK enum mc_code dials_store_open(const struct gguf *g, struct dials_store **out, struct mc_err *err);
void dials_store_close(struct dials_store *s);
const char *dials_store_path(const struct dials_store *s);
/* Replaces what was kept. */
MC_MUST_CHECK enum mc_code dials_store_save(const struct dials_store *s, const struct json_out *table, struct mc_err *err);
/* Writes the member "cost": the row that was measured with these settings (the scope apart), or null and, as "cost_note", why.
 * The file is looked at again after a second at the earliest. s may be NULL: nothing was kept. Threads: one at a time. */
void dials_store_cost(struct dials_store *s, const struct moe_settings *settings, const struct settings_limits *limits,
                      const char *model, struct json_out *j);

#endif
