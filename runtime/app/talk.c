/* talk.c - see talk.h. */
#include "runtime/app/talk.h"

#include "platform/os.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "runtime/app/progress.h"
#include "runtime/app/streaming_out.h"
#include "runtime/app/talk_control.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/sampler.h"
#include "runtime/text/answer_stream.h"
#include "runtime/text/utf8_stream.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

/* The real model allows a million tokens; a context of that size is for those who ask. */
enum { TALK_CTX_DEFAULT = 8192 };

static double seconds_since(uint64_t start_ns)
{
    return (double)(os_clock_ns() - start_ns) * 1e-9;
}

enum mc_code talk_open(struct talk *t, const struct app_options *o, struct mc_err *err)
{
    memset(t, 0, sizeof *t);
    t->quiet = opt_flag(o, OPT_QUIET);
    t->ignore_eos = opt_flag(o, OPT_IGNORE_EOS);
    t->tokens_max = opt_is_set(o, OPT_PREDICT) ? (uint64_t)opt_int(o, OPT_PREDICT) : UINT64_MAX;
    t->seed = opt_is_set(o, OPT_SEED) ? (uint64_t)opt_int(o, OPT_SEED) : (os_clock_ns() ^ (uint64_t)time(NULL) << 20) >> 11;
    enum mc_code code = model_open(o, &t->engine, &t->tok, err);
    if (!code) code = model_session(o, t->engine, TALK_CTX_DEFAULT, 0, &t->session, err);
    if (code) return code;
    const struct sampler_options so = {
        .temp = (float)opt_num(o, OPT_TEMP),
        .top_k = (int32_t)opt_int(o, OPT_TOP_K),
        .top_p = (float)opt_num(o, OPT_TOP_P),
        .min_p = (float)opt_num(o, OPT_MIN_P),
        .seed = t->seed,
    };
    code = sampler_create(&so, engine_shape(t->engine)->n_vocab, &t->sampler, err);
    if (code) return code;
    code = talk_control_open(o, t->engine, t->session, &t->control, err);
    if (code) return code;
    const int64_t profile = opt_int(o, OPT_CHAT_PROFILE); /* auto, 0731, preview */
    t->controls.profile = profile == 0   ? chat_profile_of(engine_gguf(t->engine))
                          : profile == 1 ? CHAT_PROFILE_0731
                                         : CHAT_PROFILE_PREVIEW;
    if (!chat_think_word(opt_text(o, OPT_THINK), &t->controls))
        return mc_fail(err, MC_EARG, 0, "--think: '%s' is unknown", opt_text(o, OPT_THINK));
    return MC_OK;
}

void talk_close(struct talk *t)
{
    talk_control_close(t->control);
    sampler_destroy(t->sampler);
    session_destroy(t->session);
    tokenizer_destroy(t->tok);
    engine_close(t->engine);
}

/* ---- ids to text ------------------------------------------------------------------------------------------------------ */

/* Either the answer parser of the chat form or, raw, plain decoding. */
struct writer {
    const struct talk *talk;
    const struct talk_sink *sink;
    struct answer_stream *answer; /* NULL: raw */
    struct utf8_stream utf8;
    struct text_buf text;
};

static enum mc_code writer_open(struct writer *w, const struct talk *t, bool in_reasoning, bool raw,
                                const struct talk_sink *sink, struct mc_err *err)
{
    *w = (struct writer){.talk = t, .sink = sink};
    utf8_stream_init(&w->utf8);
    text_buf_init(&w->text);
    if (raw) return MC_OK;
    const struct answer_options ao = {.in_reasoning = in_reasoning};
    const struct answer_events ev = {.user = sink->user, .reasoning = sink->reasoning, .content = sink->content};
    return answer_stream_create(t->tok, &ao, &ev, &w->answer, err);
}

static void writer_close(struct writer *w)
{
    answer_stream_destroy(w->answer);
    text_buf_deinit(&w->text);
}

static enum mc_code writer_send(struct writer *w, struct mc_err *err)
{
    const enum mc_code code = text_buf_check(&w->text, err);
    if (!code && w->text.size && w->sink->content) w->sink->content(w->sink->user, text_buf_span(&w->text));
    text_buf_clear(&w->text);
    return code;
}

static enum mc_code writer_feed(struct writer *w, int32_t id, struct mc_err *err)
{
    if (w->answer) return answer_stream_feed_id(w->answer, id, err);
    if (tokenizer_ends_answer(w->talk->tok, id)) return MC_OK; /* --ignore-eos */
    utf8_stream_feed(&w->utf8, tokenizer_bytes(w->talk->tok, id), &w->text);
    return writer_send(w, err);
}

static enum mc_code writer_finish(struct writer *w, enum talk_finish why, struct mc_err *err)
{
    enum answer_finish ignored;
    if (w->answer) return answer_stream_finish(w->answer, why == TALK_STOP ? ANSWER_STOP : ANSWER_LENGTH, &ignored, err);
    utf8_stream_flush(&w->utf8, &w->text);
    return writer_send(w, err);
}

/* ---- one answer ------------------------------------------------------------------------------------------------------- */

/* What the user can do about a context that is too small. */
static const char *context_hint(const struct talk *t)
{
    return session_capacity(t->session) < engine_shape(t->engine)->n_ctx_max ? "see --ctx" : "the most this model allows";
}

enum mc_code talk_check_size(const struct talk *t, size_t bytes, struct mc_err *err)
{
    const size_t n = bytes / (tokenizer_longest(t->tok) + 1);
    if (n <= session_capacity(t->session)) return MC_OK;
    return mc_fail(err, MC_EFULL, 0, "the prompt of %zu bytes has more than %zu tokens, the context holds %u (%s)", bytes, n,
                   (unsigned)session_capacity(t->session), context_hint(t));
}

static enum mc_code prefill(struct talk *t, const struct token_list *prompt, struct talk_result *r, struct mc_err *err)
{
    r->n_prompt = prompt->n;
    if (prompt->n == 0) return mc_fail(err, MC_EARG, 0, "the prompt is empty");
    if (prompt->n > session_capacity(t->session))
        return mc_fail(err, MC_EFULL, 0, "the prompt has %zu tokens, the context holds %u (%s)", prompt->n,
                       (unsigned)session_capacity(t->session), context_hint(t));
    uint32_t kept = 0;
    const uint64_t start = os_clock_ns();
    enum mc_code code = session_keep_prefix(t->session, prompt->ids, prompt->n, &kept, err);
    if (code) return code;
    r->n_kept = kept;
    struct progress p;
    progress_begin(&p, "prompt", "tokens", 1, t->quiet);
    session_set_progress(t->session, model_progress, &p);
    code = session_append(t->session, prompt->ids + kept, prompt->n - kept, err);
    session_set_progress(t->session, NULL, NULL);
    progress_end(&p);
    r->n_run = session_position(t->session) - kept;
    talk_control_prompt(t->control, prompt->n, kept, session_position(t->session));
    r->prefill_s = seconds_since(start);
    return code;
}

static enum mc_code decode(struct talk *t, struct writer *w, struct talk_result *r, struct mc_err *err)
{
    const uint64_t start = os_clock_ns();
    enum mc_code code = MC_OK;
    for (;;) {
        r->decode_s = seconds_since(start);
        r->finish = os_interrupted() ? TALK_INTERRUPTED : TALK_LENGTH;
        if (os_interrupted() || r->generated.n >= t->tokens_max) return MC_OK;
        int32_t id;
        code = sampler_pick(t->sampler, session_logits(t->session), &id, err);
        if (!code) code = token_list_add(&r->generated, id, err);
        if (code) return code;
        if (tokenizer_ends_answer(t->tok, id) && !t->ignore_eos) {
            r->finish = TALK_STOP;
            return MC_OK;
        }
        errno = 0;
        code = writer_feed(w, id, err);
        if (code) return code;
        if (ferror(stdout)) return output_failed(errno, err);
        if (session_position(t->session) == session_capacity(t->session)) return MC_OK;
        if (r->generated.n >= t->tokens_max) return MC_OK; /* its logits are not needed */
        code = session_decode(t->session, id, err);
        if (code) return code;
        talk_control_token(t->control, session_position(t->session));
        r->n_decoded++;
    }
}

enum mc_code talk_answer(struct talk *t, const struct token_list *prompt, bool in_reasoning, bool raw,
                         const struct talk_sink *sink, struct talk_result *r, struct mc_err *err)
{
    memset(r, 0, sizeof *r);
    token_list_init(&r->generated);
    struct writer w;
    struct engine_streaming before;
    engine_streaming_get(t->engine, &before);
    enum mc_code code = writer_open(&w, t, in_reasoning, raw, sink, err);
    if (!code) code = prefill(t, prompt, r, err);
    if (code == MC_ECANCELLED)
        r->finish = TALK_INTERRUPTED, code = MC_OK;
    else if (!code)
        code = decode(t, &w, r, err);
    if (!code) code = writer_finish(&w, r->finish, err);
    writer_close(&w);
    engine_streaming_get(t->engine, &r->streamed);
    r->streamed = streaming_since(&r->streamed, &before);
    return code;
}

void talk_result_free(struct talk_result *r)
{
    token_list_deinit(&r->generated);
}

/* ---- what is said about it -------------------------------------------------------------------------------------------- */

const char *talk_finish_name(enum talk_finish f)
{
    return f == TALK_STOP ? "stop" : f == TALK_LENGTH ? "length" : "interrupted";
}

double talk_prefill_rate(const struct talk_result *r)
{
    return r->n_run ? (double)r->n_run / r->prefill_s : (double)NAN;
}

double talk_decode_rate(const struct talk_result *r)
{
    return r->n_decoded ? (double)r->n_decoded / r->decode_s : (double)NAN;
}

void talk_print_stats(const struct talk *t, const struct talk_result *r)
{
    if (t->quiet) return;
    fprintf(stderr, "modchip: prompt %zu tokens", r->n_prompt);
    if (r->n_kept) fprintf(stderr, " (%zu kept)", r->n_kept);
    if (r->n_kept + r->n_run < r->n_prompt) fprintf(stderr, " (%zu run)", r->n_run);
    if (r->n_run) fprintf(stderr, ", %.1f tok/s", talk_prefill_rate(r));
    fprintf(stderr, "; answer %zu tokens", r->generated.n);
    if (r->n_decoded) fprintf(stderr, ", %.1f tok/s", talk_decode_rate(r));
    fprintf(stderr, "; %s; context %u of %u\n", talk_finish_name(r->finish), (unsigned)session_position(t->session),
            (unsigned)session_capacity(t->session));
    const struct engine_streaming *const n = &r->streamed;
    if (n->hits + n->misses == 0) return;
    struct engine_facts f;
    engine_facts_get(t->engine, &f);
    fprintf(stderr, "modchip: experts %.1f %% in memory, %.2f GB read", 100 * streaming_hit_rate(n),
            (double)n->bytes_read * 1e-9);
    if (n->bytes_read) fprintf(stderr, " at %.2f GB/s", streaming_gb_s(n));
    if (n->bytes_read && f.expert_disk_gb_s > 0)
        fprintf(stderr, " (%.0f %% of the disk)", 100 * streaming_gb_s(n) / f.expert_disk_gb_s);
    fprintf(stderr, ", waited %.2f s", (double)n->stall_ns * 1e-9);
    if (n->guesses) fprintf(stderr, ", guesses %.0f %% right", 100 * (double)n->guesses_used / (double)n->guesses);
    fprintf(stderr, "\n");
}

void talk_reasoning_show(struct talk_reasoning_view *v, struct mc_span text)
{
    if (!v->enabled) return;
    if (!v->open) fputs("\033[2m", stderr);
    v->open = true;
    fwrite(text.data, 1, text.size, stderr);
    fflush(stderr);
}

void talk_reasoning_end(struct talk_reasoning_view *v)
{
    if (v->open) fputs("\033[0m\n", stderr);
    v->open = false;
}
