/* cmd_logits.c - `modchip logits`: a token list in, raw float32 logits out. */
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/numbers.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "runtime/app/progress.h"
#include "runtime/engine/engine.h"

#include <stdlib.h>

struct logits_job {
    struct os_writer *out;
    uint8_t *row; /* one row as little-endian bytes */
    uint8_t *want;
    int32_t *ids, *positions;
    size_t n_ids, n_positions;
    uint32_t n_vocab;
    struct json_out argmax;
    enum mc_code code; /* of the first write that failed */
    struct mc_err err;
};

static void on_logits(void *user, uint32_t position, const float *logits)
{
    struct logits_job *job = user;
    (void)position;
    if (job->code) return;
    uint32_t best = 0;
    for (uint32_t i = 0; i < job->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], 4);
        mc_store_u32(job->row + 4 * (size_t)i, bits);
        if (logits[i] > logits[best]) best = i;
    }
    json_out_uint(&job->argmax, NULL, best);
    job->code = os_writer_write(job->out, job->row, 4 * (size_t)job->n_vocab, &job->err);
}

/* Fills want[] and positions[] from --positions, or with every position. */
static enum mc_code choose_positions(struct logits_job *job, const char *list, struct mc_err *err)
{
    job->want = calloc(job->n_ids, 1);
    if (!job->want) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu positions", job->n_ids);
    if (!list) {
        job->n_positions = job->n_ids;
        job->positions = malloc(job->n_ids * sizeof *job->positions);
        if (!job->positions) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu positions", job->n_ids);
        for (size_t i = 0; i < job->n_ids; i++) job->positions[i] = (int32_t)i;
    } else {
        const enum mc_code code =
            number_list_arg(list, "--positions", 0, (int32_t)job->n_ids - 1, &job->positions, &job->n_positions, err);
        if (code) return code;
    }
    if (job->n_positions == 0) return mc_fail(err, MC_EARG, 0, "--positions: the list is empty");
    for (size_t i = 0; i < job->n_positions; i++) {
        if (i && job->positions[i] <= job->positions[i - 1])
            return mc_fail(err, MC_EARG, 0, "--positions: %d after %d; the rows are written in ascending order",
                           (int)job->positions[i], (int)job->positions[i - 1]);
        job->want[job->positions[i]] = 1;
    }
    return MC_OK;
}

static enum mc_code print_result(struct logits_job *job, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_array(&j, "positions");
    for (size_t i = 0; i < job->n_positions; i++) json_out_int(&j, NULL, job->positions[i]);
    json_out_array_end(&j);
    json_out_uint(&j, "vocab", job->n_vocab);
    json_out_splice(&j, "argmax", &job->argmax);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static enum mc_code evaluate(struct logits_job *job, struct session *s, const struct app_options *o, struct mc_err *err)
{
    job->row = malloc(4 * (size_t)job->n_vocab);
    if (!job->row) return mc_fail(err, MC_ENOMEM, 0, "no memory for a row of logits");
    enum mc_code code = os_writer_create(opt_text(o, OPT_OUTPUT), &job->out, err);
    if (code) return code;
    struct progress p;
    progress_begin(&p, "logits", "tokens", 1, opt_flag(o, OPT_QUIET));
    session_set_progress(s, model_progress, &p);
    json_out_array(&job->argmax, NULL);
    code = session_append_all(s, job->ids, job->n_ids, job->want, on_logits, job, err);
    json_out_array_end(&job->argmax);
    progress_end(&p);
    if (!code && job->code) {
        if (err) *err = job->err;
        code = job->code;
    }
    if (!code) return os_writer_finish(job->out, err);
    os_writer_abort(job->out);
    return code;
}

enum mc_code cmd_logits(const struct app_options *o, struct mc_err *err)
{
    if (!opt_text(o, OPT_TOKENS)) return mc_fail(err, MC_EARG, 0, "logits needs --tokens LIST");
    const char *const path = opt_text(o, OPT_OUTPUT);
    if (!path) return mc_fail(err, MC_EARG, 0, "logits needs -o FILE");
    struct logits_job job = {0};
    struct engine *engine = NULL;
    struct session *session = NULL;
    enum mc_code code = output_check("-o", path, NULL, opt_text(o, OPT_MODEL), err);
    if (!code) code = number_list_arg(opt_text(o, OPT_TOKENS), "--tokens", 0, INT32_MAX, &job.ids, &job.n_ids, err);
    if (!code && job.n_ids == 0) code = mc_fail(err, MC_EARG, 0, "--tokens: the list is empty");
    if (!code) code = choose_positions(&job, opt_text(o, OPT_POSITIONS), err);
    if (!code) code = model_open(o, &engine, NULL, err);
    if (!code) code = output_check("-o", path, engine, NULL, err);
    if (!code) code = model_session(o, engine, job.n_ids, job.n_ids, &session, err);
    if (!code) {
        job.n_vocab = engine_shape(engine)->n_vocab;
        code = evaluate(&job, session, o, err);
    }
    if (!code) code = print_result(&job, err);
    session_destroy(session);
    engine_close(engine);
    json_out_deinit(&job.argmax);
    free(job.row);
    free(job.want);
    free(job.positions);
    free(job.ids);
    return code;
}
