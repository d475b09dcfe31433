/* talk.h - one answer: prompt ids in, text out as it becomes safe to show. Shared by run and chat.
 *
 *   ids -> session (the common prefix is kept) -> sampler -> answer_stream (or, raw, utf8_stream) -> sink */
#ifndef RUNTIME_APP_TALK_H
#define RUNTIME_APP_TALK_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"
#include "runtime/engine/engine.h"
#include "runtime/text/chat_form.h"
#include "runtime/text/tokenizer.h"

struct app_options;
struct engine;
struct sampler;
struct session;
struct talk_control;

struct talk {
    struct engine *engine;
    struct tokenizer *tok;
    struct session *session;
    struct sampler *sampler;
    struct talk_control *control;
    struct chat_controls controls;
    uint64_t seed;
    uint64_t tokens_max; /* -n; UINT64_MAX: to the end of the context */
    bool ignore_eos, quiet;
};

enum talk_finish { TALK_STOP, TALK_LENGTH, TALK_INTERRUPTED };

struct talk_result {
    enum talk_finish finish;
    size_t n_prompt, n_kept;     /* prompt tokens; of these already in the session */
    size_t n_run;                /* prompt tokens run now: less than the others when that was interrupted */
    struct token_list generated; /* the end token included */
    size_t n_decoded;            /* forward passes after the prompt */
    double prefill_s, decode_s;
    struct engine_streaming streamed; /* by all of it; zeros where nothing is streamed */
};

/* Text arrives here, whole code points; either may be NULL. */
struct talk_sink {
    void *user;
    void (*content)(void *user, struct mc_span text);
    void (*reasoning)(void *user, struct mc_span text);
};

/* Opens model, tokenizer, session, sampler and what steers it from outside by the options of run and chat. talk_close is safe
 * after any failure and on zeros. */
MC_MUST_CHECK enum mc_code talk_open(struct talk *t, const struct app_options *o, struct mc_err *err);
void talk_close(struct talk *t);

/* MC_EFULL when a prompt of so many bytes cannot fit the context whatever its tokens are: asked before it is cut into tokens,
 * which would take a while for a text of megabytes. */
MC_MUST_CHECK enum mc_code talk_check_size(const struct talk *t, size_t bytes, struct mc_err *err);

/* raw: every token but the end token is content, as it comes. Ctrl-C and a full context are results, not errors.
 * Errors: MC_EFULL when the prompt alone does not fit, and what session and sampler say. *r is valid in any case;
 * talk_result_free it. */
MC_MUST_CHECK enum mc_code talk_answer(struct talk *t, const struct token_list *prompt, bool in_reasoning, bool raw,
                                       const struct talk_sink *sink, struct talk_result *r, struct mc_err *err);
void talk_result_free(struct talk_result *r);

const char *talk_finish_name(enum talk_finish f);
double talk_prefill_rate(const struct talk_result *r); /* tokens per second; NaN when nothing was run */
double talk_decode_rate(const struct talk_result *r);
/* One line of statistics on stderr, unless quiet. */
void talk_print_stats(const struct talk *t, const struct talk_result *r);

/* Reasoning is shown on stderr, dimmed, when that is a terminal. begin/end bracket it. */
struct talk_reasoning_view {
    bool enabled, open;
};
void talk_reasoning_show(struct talk_reasoning_view *v, struct mc_span text);
void talk_reasoning_end(struct talk_reasoning_view *v);

#endif
