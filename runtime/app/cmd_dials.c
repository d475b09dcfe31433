/* cmd_dials.c - `modchip dials`: what each profile of lossy settings gains and costs, side by side.
 *
 * Quality: the windows of a text as `ppl` cuts them, every token with the settings; one window after the other, so that its
 * lossless logits stay in memory while all profiles run it. Speed: decoding the beginning of the text from the same state,
 * profiles in turn, medians over the rounds. Bytes are the weights and cache rows that a decoded token really reads. */
#include "io/gguf/gguf.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/dials_store.h"
#include "runtime/app/json_out.h"
#include "runtime/app/kl.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/progress.h"
#include "runtime/app/text_windows.h"
#include "runtime/control/settings.h"
#include "runtime/control/settings_json.h"
#include "runtime/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS_MAX = 32, WINDOWS_DEFAULT = 12, DECODE_DEFAULT = 32, PROMPT = 8 };

struct row {
    const char *name;
    struct moe_settings settings;
    struct kl_stats kl;
    struct kl_result result;
    double delta_sum, delta_squares; /* of the windows' mean nll differences */
    double experts;                  /* routed experts used of a token and layer, hash layers included */
    double *seconds;                 /* by round */
    double tok_s;
    uint64_t token_bytes;
};

struct dials {
    const struct app_options *o;
    struct engine *engine;
    struct session *session;
    struct text_windows text;
    struct row rows[ROWS_MAX]; /* [0] is lossless */
    size_t n_rows;
    struct row *at; /* the one that is run */
    float *plain;   /* [n_scored][vocabulary] lossless logits of the window */
    size_t n_got;
    uint32_t n_decode, n_rounds;
    struct progress progress;
};

static void on_logits(void *user, uint32_t position, const float *logits)
{
    struct dials *d = user;
    const uint32_t n_vocab = engine_shape(d->engine)->n_vocab;
    float *plain = d->plain + d->n_got++ * n_vocab;
    if (d->at == d->rows)
        memcpy(plain, logits, n_vocab * sizeof *logits);
    else
        kl_add(&d->at->kl, plain, logits, (uint32_t)d->text.window[position + 1]);
}

static void put(struct dials *d, struct moe_settings s, enum moe_scope scope)
{
    s.scope = scope;
    (void)settings_box_set(engine_settings(d->engine), &s, SETTINGS_START, 0);
}

/* The profiles that leave something out on this model, and the settings of the command line if they do. */
static enum mc_code list_rows(struct dials *d, struct mc_err *err)
{
    const struct settings_limits *limits = settings_box_limits(engine_settings(d->engine));
    const size_t positions = (size_t)d->text.n * d->text.n_scored;
    struct settings_state given;
    settings_box_get(engine_settings(d->engine), &given);
    for (size_t i = 0; d->n_rows < ROWS_MAX; i++) {
        struct row *r = &d->rows[d->n_rows];
        r->name = settings_profile_name(i);
        if (!r->name) break;
        (void)settings_profile(r->name, limits, &r->settings);
        if (i == 0 || settings_lossy(&r->settings, limits)) d->n_rows++;
    }
    if (settings_lossy(&given.settings, limits) && d->n_rows < ROWS_MAX)
        d->rows[d->n_rows++] = (struct row){.name = "options", .settings = given.settings};
    enum mc_code code = MC_OK;
    for (size_t i = 0; i < d->n_rows && !code; i++) {
        d->rows[i].seconds = calloc(d->n_rounds, sizeof(double));
        if (!d->rows[i].seconds) return mc_fail(err, MC_ENOMEM, 0, "no memory for the rounds");
        if (i > 0) code = kl_create(&d->rows[i].kl, engine_shape(d->engine)->n_vocab, positions, err);
    }
    return code;
}

static enum mc_code run_window(struct dials *d, struct row *r, struct mc_err *err)
{
    const double p = r->kl.nll_p_sum, q = r->kl.nll_q_sum;
    d->at = r;
    d->n_got = 0;
    put(d, r->settings, MOE_SCOPE_ALL);
    enum mc_code code = session_rewind(d->session, 0, err);
    if (!code) code = session_append_all(d->session, d->text.window, d->text.chunk - 1, d->text.want, on_logits, d, err);
    if (!code) code = check_interrupt(err);
    const double delta = ((r->kl.nll_q_sum - q) - (r->kl.nll_p_sum - p)) / d->text.n_scored;
    r->delta_sum += delta;
    r->delta_squares += delta * delta;
    return code;
}

static enum mc_code measure_quality(struct dials *d, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    progress_begin(&d->progress, "distance", "windows", 1, opt_flag(d->o, OPT_QUIET));
    for (uint32_t w = 0; w < d->text.n && !code; w++) {
        text_windows_load(&d->text, w);
        for (size_t i = 0; i < d->n_rows && !code; i++) {
            code = run_window(d, &d->rows[i], err);
            progress_update(&d->progress, w * d->n_rows + i + 1, d->text.n * d->n_rows);
        }
    }
    progress_end(&d->progress);
    for (size_t i = 1; i < d->n_rows && !code; i++) kl_finish(&d->rows[i].kl, &d->rows[i].result);
    return code;
}

static enum mc_code decode(struct dials *d, struct row *r, double *seconds, struct mc_err *err)
{
    struct engine_counts before, after;
    struct engine_facts facts;
    put(d, r->settings, MOE_SCOPE_DECODE);
    enum mc_code code = session_rewind(d->session, PROMPT, err);
    engine_counts_get(d->engine, &before);
    const uint64_t start = os_clock_ns();
    for (uint32_t i = 0; i < d->n_decode && !code; i++) {
        code = session_decode(d->session, d->text.ids.ids[PROMPT + i], err);
        if (!code) code = check_interrupt(err);
    }
    *seconds = (double)(os_clock_ns() - start + 1) * 1e-9;
    engine_counts_get(d->engine, &after);
    engine_facts_get(d->engine, &facts);
    const uint64_t used = after.experts_used - before.experts_used, n = d->n_decode ? d->n_decode : 1;
    r->experts = (double)used / (double)n / engine_shape(d->engine)->n_layer;
    r->token_bytes = facts.token_bytes_layers + facts.token_bytes_head +
                     session_token_kv_bytes(d->session, PROMPT + d->n_decode / 2) -
                     (after.bytes_saved - before.bytes_saved) / n;
    return code;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A round that is not counted first: buffers and weights are touched for the first time. */
static enum mc_code measure_speed(struct dials *d, struct mc_err *err)
{
    double ignored;
    enum mc_code code = session_rewind(d->session, 0, err);
    put(d, d->rows[0].settings, MOE_SCOPE_DECODE);
    if (!code) code = session_append(d->session, d->text.ids.ids, PROMPT, err);
    if (!code) code = decode(d, &d->rows[0], &ignored, err);
    for (uint32_t round = 0; round < d->n_rounds; round++)
        for (size_t i = 0; i < d->n_rows && !code; i++) code = decode(d, &d->rows[i], &d->rows[i].seconds[round], err);
    for (size_t i = 0; i < d->n_rows && !code; i++) {
        qsort(d->rows[i].seconds, d->n_rounds, sizeof(double), by_value);
        d->rows[i].tok_s = d->n_decode / d->rows[i].seconds[d->n_rounds / 2];
    }
    return code;
}

/* Standard error of the mean nll difference; of one window there is none. */
static double delta_error(const struct dials *d, const struct row *r)
{
    const double n = d->text.n, mean = r->delta_sum / n, variance = (r->delta_squares / n - mean * mean) * n / (n - 1);
    return d->text.n > 1 ? sqrt(variance > 0 ? variance / n : 0) : (double)NAN;
}

static void write_table(const struct dials *d, struct json_out *out)
{
    const struct settings_limits *limits = settings_box_limits(engine_settings(d->engine));
    struct engine_facts facts;
    struct json_out j;
    engine_facts_get(d->engine, &facts);
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_text(&j, "model", gguf_path(engine_gguf(d->engine)));
    json_out_text(&j, "text", opt_text(d->o, OPT_FILE));
    json_out_text(&j, "isa", facts.isa);
    json_out_uint(&j, "threads", facts.n_threads);
    json_out_uint(&j, "windows", d->text.n);
    json_out_uint(&j, "tokens", (uint64_t)d->text.n * d->text.n_scored);
    json_out_uint(&j, "decode_tokens", d->n_decode);
    json_out_array(&j, "profiles");
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct row *r = &d->rows[i];
        char text[200];
        settings_describe(&r->settings, limits, text, sizeof text);
        json_out_object(&j, NULL);
        json_out_text(&j, "profile", r->name);
        json_out_text(&j, "settings", text);
        settings_to_json(&r->settings, &j, "values");
        json_out_num(&j, "decode_tok_s", r->tok_s);
        json_out_uint(&j, "bytes_per_token", r->token_bytes);
        json_out_num(&j, "experts_per_layer", r->experts);
        json_out_num(&j, "kl_mean", r->result.kl_mean);
        json_out_num(&j, "kl_p99", r->result.kl_p99);
        json_out_num(&j, "kl_top10_mean", r->result.top10_mean);
        json_out_num(&j, "kl_top10_p99", r->result.top10_p99);
        json_out_num(&j, "top1_match", i ? r->result.top1_match : 1);
        json_out_num(&j, "top3_match", i ? r->result.top3_match : 1);
        json_out_num(&j, "cos_mean", i ? r->result.cos_mean : 1);
        json_out_num(&j, "delta_ppl", r->result.delta_ppl);
        json_out_num(&j, "delta_nll_error", i ? delta_error(d, r) : 0);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_object_end(&j);
    *out = j;
}

/* Kept for `ctl get`. A table that cannot be kept is a table all the same. */
static void keep_table(const struct dials *d, const struct json_out *table)
{
    struct dials_store *store = NULL;
    struct mc_err err;
    enum mc_code code = dials_store_open(engine_gguf(d->engine), &store, &err);
    if (!code) code = dials_store_save(store, table, &err);
    if (code)
        fprintf(stderr, "modchip: the table is not kept: %s\n", err.msg);
    else if (!opt_flag(d->o, OPT_QUIET))
        fprintf(stderr, "modchip: kept for ctl get in %s\n", dials_store_path(store));
    dials_store_close(store);
}

static void print_table(const struct dials *d)
{
    printf("%u windows, %u positions; decoding: median of %u\n", (unsigned)d->text.n, (unsigned)(d->text.n * d->text.n_scored),
           (unsigned)d->n_rounds);
    printf("profile      tok/s  MB/token  experts  KL mean  KL p99  top-10 KL   cosine  top-1 %%  top-3 %%  PPL %%\n");
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct row *r = &d->rows[i];
        printf("%-11s %6.2f %9.2f %8.2f", r->name, r->tok_s, (double)r->token_bytes * 1e-6, r->experts);
        if (i)
            printf(" %8.5f %7.4f %10.5f %8.5f %8.2f %8.2f  %+.2f +- %.2f", r->result.kl_mean, r->result.kl_p99,
                   r->result.top10_mean, r->result.cos_mean, 100 * r->result.top1_match, 100 * r->result.top3_match,
                   100 * r->result.delta_ppl, 100 * delta_error(d, r));
        printf("\n");
    }
    if (!engine_rows_saving(d->engine, 64, 64))
        printf("rows: nothing is saved, the up matrices are packed (--swiglu-exps 128 --swiglu-shexp 128 keeps them row by "
               "row)\n");
}

static enum mc_code measure(struct dials *d, struct mc_err *err)
{
    const uint32_t n_vocab = engine_shape(d->engine)->n_vocab;
    const uint64_t need = d->text.chunk > PROMPT + d->n_decode ? d->text.chunk : PROMPT + d->n_decode;
    if (d->text.ids.n < PROMPT + (size_t)d->n_decode)
        return mc_fail(err, MC_EARG, 0, "the text has %zu tokens, -n %u needs %u", d->text.ids.n, (unsigned)d->n_decode,
                       (unsigned)(PROMPT + d->n_decode));
    d->plain = malloc((size_t)d->text.n_scored * n_vocab * sizeof *d->plain);
    if (!d->plain) return mc_fail(err, MC_ENOMEM, 0, "no memory for the logits of a window");
    enum mc_code code = list_rows(d, err);
    if (!code) code = model_session(d->o, d->engine, need, need, &d->session, err);
    if (!code) code = measure_quality(d, err);
    if (!code) code = measure_speed(d, err);
    if (code) return code;
    struct json_out table;
    write_table(d, &table);
    keep_table(d, &table);
    if (opt_flag(d->o, OPT_JSON)) return json_out_finish(&table, err);
    json_out_deinit(&table);
    print_table(d);
    return MC_OK;
}

enum mc_code cmd_dials(const struct app_options *o, struct mc_err *err)
{
    if (!opt_text(o, OPT_FILE)) return mc_fail(err, MC_EARG, 0, "dials needs -f FILE");
    if (opt_is_set(o, OPT_PREDICT) && opt_int(o, OPT_PREDICT) < 1) return mc_fail(err, MC_EARG, 0, "-n: at least 1 token");
    char *text;
    size_t size;
    enum mc_code code = os_file_read_all(opt_text(o, OPT_FILE), INPUT_BYTES_MAX, &text, &size, err);
    if (code) return code;
    struct tokenizer *tok = NULL;
    struct dials *d = calloc(1, sizeof *d);
    if (!d) code = mc_fail(err, MC_ENOMEM, 0, "no memory for the table");
    if (!code) {
        d->o = o;
        d->n_decode = opt_is_set(o, OPT_PREDICT) ? (uint32_t)opt_int(o, OPT_PREDICT) : DECODE_DEFAULT;
        d->n_rounds = opt_is_set(o, OPT_REPEATS) ? (uint32_t)opt_int(o, OPT_REPEATS) : 3;
        code = model_open(o, &d->engine, &tok, err);
    }
    if (!code) code = text_windows_plan(&d->text, o, tok, text_span(text, size), WINDOWS_DEFAULT, err);
    if (!code) code = measure(d, err);
    for (size_t i = 0; d && i < d->n_rows; i++) {
        kl_destroy(&d->rows[i].kl);
        free(d->rows[i].seconds);
    }
    if (d) {
        text_windows_free(&d->text);
        free(d->plain);
        session_destroy(d->session);
        engine_close(d->engine);
    }
    tokenizer_destroy(tok);
    free(d);
    free(text);
    return code;
}
