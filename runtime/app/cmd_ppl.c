/* cmd_ppl.c - `modchip ppl`: perplexity of a text, and the distance to logits that another run kept. The windows:
 * text_windows.h. */
#include "platform/base/hash.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/kl.h"
#include "runtime/app/kl_file.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "runtime/app/progress.h"
#include "runtime/app/text_windows.h"
#include "runtime/engine/engine.h"
#include "runtime/text/tokenizer.h"

#include <math.h>
#include <stdlib.h>

struct ppl_job {
    struct text_windows text;
    struct kl_layout layout;
    struct kl_writer *save;
    struct kl_reader *with;
    struct kl_stats kl;
    double nll_sum;
    size_t n_scored;
    struct progress progress;
    uint64_t tokens_before; /* of the windows that are done */
    enum mc_code code;      /* first failure inside on_logits */
    struct mc_err err;
};

static void on_logits(void *user, uint32_t position, const float *logits)
{
    struct ppl_job *job = user;
    if (job->code) return;
    const uint32_t target = (uint32_t)job->text.window[position + 1];
    job->nll_sum += logits_nll(logits, job->layout.n_vocab, target);
    job->n_scored++;
    if (job->save) job->code = kl_writer_add(job->save, logits, &job->err);
    if (job->code || !job->with) return;
    const float *saved;
    job->code = kl_reader_next(job->with, &saved, &job->err);
    if (!job->code) kl_add(&job->kl, saved, logits, target);
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    struct ppl_job *job = user;
    (void)total;
    progress_update(&job->progress, job->tokens_before + done, (uint64_t)job->layout.n_windows * (job->layout.chunk - 1));
    return !job->code && !os_interrupted();
}

/* The windows, and what they are as the file of --kl-save says it. */
static enum mc_code plan(struct ppl_job *job, const struct app_options *o, const struct tokenizer *tok, struct mc_span text,
                         struct mc_err *err)
{
    const struct text_windows *t = &job->text;
    const enum mc_code code = text_windows_plan(&job->text, o, tok, text, UINT32_MAX, err);
    if (code) return code;
    job->layout.chunk = t->chunk;
    job->layout.stride = t->stride;
    job->layout.n_windows = t->n;
    job->layout.n_scored = t->n_scored;
    job->layout.ids_hash = mc_hash64(t->ids.ids, ((size_t)(t->n - 1) * t->stride + t->chunk) * sizeof *t->ids.ids, 0);
    return MC_OK;
}

/* The file of --kl-save is none that is read; without an engine only what the options tell. */
static enum mc_code check_save(const struct app_options *o, const struct engine *engine, struct mc_err *err)
{
    const char *const save = opt_text(o, OPT_KL_SAVE);
    const enum opt_id inputs[] = {OPT_MODEL, OPT_FILE, OPT_KL};
    enum mc_code code = MC_OK;
    for (size_t i = 0; save && i < ARRAY_LEN(inputs) && !code; i++)
        code = output_check("--kl-save", save, engine, opt_text(o, inputs[i]), err);
    return code;
}

static enum mc_code open_files(struct ppl_job *job, const struct app_options *o, struct mc_err *err)
{
    const char *save = opt_text(o, OPT_KL_SAVE), *with = opt_text(o, OPT_KL);
    enum mc_code code = MC_OK;
    if (with) code = kl_reader_open(with, &job->layout, &job->with, err);
    if (!code && with)
        code = kl_create(&job->kl, job->layout.n_vocab, (size_t)job->layout.n_windows * job->layout.n_scored, err);
    if (!code && save) code = kl_writer_create(save, &job->layout, &job->save, err);
    return code;
}

static enum mc_code run_windows(struct ppl_job *job, struct session *s, struct mc_err *err)
{
    const uint32_t chunk = job->layout.chunk;
    session_set_progress(s, on_progress, job);
    for (uint32_t w = 0; w < job->layout.n_windows; w++) {
        text_windows_load(&job->text, w);
        enum mc_code code = session_rewind(s, 0, err);
        if (!code) code = session_append_all(s, job->text.window, chunk - 1, job->text.want, on_logits, job, err);
        if (job->code && err) *err = job->err;
        if (!job->code && (!code || code == MC_ECANCELLED)) code = check_interrupt(err); /* also where nobody had asked */
        if (job->code || code) return job->code ? job->code : code;
        job->tokens_before += chunk - 1;
    }
    return MC_OK;
}

static enum mc_code print_result(struct ppl_job *job, double seconds, struct mc_err *err)
{
    const double nll = job->nll_sum / (double)job->n_scored;
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_num(&j, "ppl", exp(nll));
    json_out_num(&j, "nll", nll);
    json_out_uint(&j, "tokens", job->n_scored);
    json_out_uint(&j, "windows", job->layout.n_windows);
    json_out_num(&j, "prefill_tok_s", (double)job->tokens_before / seconds);
    if (job->with) {
        struct kl_result r;
        kl_finish(&job->kl, &r);
        json_out_num(&j, "kl_mean", r.kl_mean);
        json_out_num(&j, "kl_p99", r.kl_p99);
        json_out_num(&j, "kl_top10_mean", r.top10_mean);
        json_out_num(&j, "kl_top10_p99", r.top10_p99);
        json_out_num(&j, "top1_match", r.top1_match);
        json_out_num(&j, "top3_match", r.top3_match);
        json_out_num(&j, "cos_mean", r.cos_mean);
        json_out_num(&j, "delta_ppl", r.delta_ppl);
    }
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static enum mc_code measure(struct ppl_job *job, const struct app_options *o, struct engine *engine, struct mc_err *err)
{
    struct session *s;
    job->layout.n_vocab = engine_shape(engine)->n_vocab;
    enum mc_code code = model_session(o, engine, job->layout.chunk, job->layout.chunk, &s, err);
    if (code) return code;
    code = open_files(job, o, err);
    const uint64_t start = os_clock_ns();
    progress_begin(&job->progress, "perplexity", "tokens", 1, opt_flag(o, OPT_QUIET));
    if (!code) code = run_windows(job, s, err);
    progress_end(&job->progress);
    const double seconds = (double)(os_clock_ns() - start) * 1e-9;
    if (code)
        kl_writer_abort(job->save);
    else
        code = kl_writer_finish(job->save, err);
    if (!code) code = print_result(job, seconds, err);
    kl_reader_close(job->with);
    kl_destroy(&job->kl);
    session_destroy(s);
    return code;
}

enum mc_code cmd_ppl(const struct app_options *o, struct mc_err *err)
{
    if (!opt_text(o, OPT_FILE)) return mc_fail(err, MC_EARG, 0, "ppl needs -f FILE");
    char *text;
    size_t size;
    enum mc_code code = check_save(o, NULL, err);
    if (code) return code;
    code = os_file_read_all(opt_text(o, OPT_FILE), INPUT_BYTES_MAX, &text, &size, err);
    if (code) return code;
    struct ppl_job job = {0};
    struct engine *engine = NULL;
    struct tokenizer *tok = NULL;
    code = model_open(o, &engine, &tok, err);
    if (!code) code = check_save(o, engine, err);
    if (!code) code = plan(&job, o, tok, text_span(text, size), err);
    if (!code) code = measure(&job, o, engine, err);
    text_windows_free(&job.text);
    tokenizer_destroy(tok);
    engine_close(engine);
    free(text);
    return code;
}
