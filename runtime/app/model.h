/* model.h - opening what a command needs: the model file, its tokenizer, an engine, a session; and the text the user gives. */
#ifndef RUNTIME_APP_MODEL_H
#define RUNTIME_APP_MODEL_H

#include "platform/base/err.h"
#include "runtime/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct app_options;
struct engine;
struct session;
struct tokenizer;

enum { MODEL_PATH_MAX = 4096, INPUT_BYTES_MAX = 256 << 20 };

/* The file of -m, or the model that ships with the program (a line on stderr says so). Errors: MC_EARG when neither is there.
 */
MC_MUST_CHECK enum mc_code model_path(const struct app_options *o, char path[MODEL_PATH_MAX], struct mc_err *err);

/* Only the vocabulary: a GGUF without tensors is enough. */
MC_MUST_CHECK enum mc_code model_tokenizer(const struct app_options *o, struct tokenizer **out, struct mc_err *err);

/* Engine and, unless tok is NULL, tokenizer. On failure neither is left open. */
MC_MUST_CHECK enum mc_code model_open(const struct app_options *o, struct engine **engine, struct tokenizer **tok,
                                      struct mc_err *err);

/* One warning when variables of OpenMP are set by which the user may hope to place threads, and neither -t nor --pin is given.
 */
void say_openmp(const struct app_options *o);

/* --ctx (0: not given), --batch and --kv. */
struct session_options model_session_wish(const struct app_options *o);
/* The options as engine_open takes them, without session and progress; path is borrowed. */
struct engine_options model_engine_wish(const struct app_options *o, const char *path);

/* A session of --ctx tokens, or of `ctx` (cut to what the model allows) when the user said nothing. need > 0: the number of
 * tokens the command is going to put in; a context that cannot hold them is MC_EARG naming both numbers. */
MC_MUST_CHECK enum mc_code model_session(const struct app_options *o, struct engine *engine, uint64_t ctx, uint64_t need,
                                         struct session **out, struct mc_err *err);

/* The text of -p, of -f, or of standard input; malloc'ed. Errors: MC_EARG (both given, nothing given, too long), MC_EIO. */
MC_MUST_CHECK enum mc_code input_text(const struct app_options *o, char **text, size_t *size, struct mc_err *err);

/* For session_set_progress: user is a struct progress; stops at Ctrl-C. */
bool model_progress(void *user, uint64_t done, uint64_t total);

/* MC_ECANCELLED with the word for it when the user pressed Ctrl-C, else MC_OK. */
MC_MUST_CHECK enum mc_code check_interrupt(struct mc_err *err);

/* n token ids below n_vocab that depend on --seed only; to be freed. Errors: MC_ENOMEM. */
MC_MUST_CHECK enum mc_code random_ids(const struct app_options *o, uint32_t n_vocab, size_t n, int32_t **out,
                                      struct mc_err *err);

#endif
