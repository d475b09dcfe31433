/* model.c - see model.h. */
#include "runtime/app/model.h"

#include "io/gguf/gguf.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/app/dial_options.h"
#include "runtime/app/options.h"
#include "runtime/app/progress.h"
#include "runtime/engine/engine.h"
#include "runtime/text/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Length of `dir` without its last `up` parts. */
static size_t parent_length(const char *dir, unsigned up)
{
    size_t n = strlen(dir);
    for (; up && n; up--) {
        while (n && dir[n - 1] != '/' && dir[n - 1] != '\\') n--;
        if (n) n--; /* the separator */
    }
    return n;
}

enum mc_code model_path(const struct app_options *o, char path[MODEL_PATH_MAX], struct mc_err *err)
{
    /* Beside the program (an unpacked archive), above a build folder, in an install prefix. */
    static const struct {
        unsigned up;
        const char *below;
    } places[] = {{0, "models"}, {1, "models"}, {2, "models"}, {3, "models"}, {1, "share/modchip"}};
    if (opt_text(o, OPT_MODEL)) {
        const int n = snprintf(path, MODEL_PATH_MAX, "%s", opt_text(o, OPT_MODEL));
        return n < MODEL_PATH_MAX ? MC_OK
                                  : mc_fail(err, MC_EARG, 0, "the path of the model is longer than %d bytes", MODEL_PATH_MAX);
    }
    char dir[MODEL_PATH_MAX];
    const enum mc_code code = os_program_dir(dir, sizeof dir, err);
    if (code) return code;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const int kept = (int)parent_length(dir, places[i].up);
        const int n = snprintf(path, MODEL_PATH_MAX, "%.*s/%s/tiny-dsv4.gguf", kept, dir, places[i].below);
        if (n >= MODEL_PATH_MAX || !os_file_exists(path)) continue;
        fprintf(stderr, "modchip: no model given, using the small one that ships with modchip: %s\n", path);
        return MC_OK;
    }
    return mc_fail(err, MC_EARG, 0, "no model: give -m FILE or set MODCHIP_MODEL (there is no models/tiny-dsv4.gguf near %s)",
                   dir);
}

static bool interrupted(void *user)
{
    (void)user;
    return os_interrupted();
}

enum mc_code model_tokenizer(const struct app_options *o, struct tokenizer **out, struct mc_err *err)
{
    char path[MODEL_PATH_MAX];
    struct gguf *g;
    enum mc_code code = model_path(o, path, err);
    if (!code) code = gguf_open(path, &g, err);
    if (code) return code;
    code = tokenizer_create(g, out, err);
    if (!code) tokenizer_set_stop(*out, interrupted, NULL);
    gguf_close(g);
    return code;
}

void say_openmp(const struct app_options *o)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    char value[64];
    if (opt_is_set(o, OPT_THREADS) || opt_is_set(o, OPT_PIN)) return;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)os_env_get(names[i], value, sizeof value);
        if (!value[0]) continue;
        mc_log(MC_LOG_WARN, "%s is set, but modchip does not use OpenMP; -t and --pin say where its threads run", names[i]);
        return;
    }
}

struct engine_options model_engine_wish(const struct app_options *o, const char *path)
{
    return (struct engine_options){
        .model_path = path,
        .n_threads = (unsigned)opt_int(o, OPT_THREADS),
        .pin = opt_text(o, OPT_PIN),
        .isa = opt_text(o, OPT_ISA),
        .io = opt_text(o, OPT_IO),
        .layout = opt_text(o, OPT_LAYOUT),
        .touch_first = opt_flag(o, OPT_LOAD),
        .numa = opt_text(o, OPT_NUMA),
        .hugepages = opt_text(o, OPT_HUGEPAGES),
        .memory_bytes = (uint64_t)opt_int(o, OPT_MEMORY),
        .expert_cache_given = opt_is_set(o, OPT_EXPERT_CACHE),
        .expert_cache_bytes = (uint64_t)opt_int(o, OPT_EXPERT_CACHE),
        .keep_up_exps = dial_options_rows_exps(o),
        .keep_up_shexp = dial_options_rows_shexp(o),
        .arith = opt_int(o, OPT_ARITH) ? ENGINE_EXACT : ENGINE_FAST,
    };
}

enum mc_code model_open(const struct app_options *o, struct engine **engine, struct tokenizer **tok, struct mc_err *err)
{
    char path[MODEL_PATH_MAX];
    enum mc_code code = dial_options_check(o, err);
    if (!code) code = model_path(o, path, err);
    if (code) return code;
    say_openmp(o);
    const struct session_options session = model_session_wish(o);
    struct progress p;
    progress_begin(&p, "reading weights", "GB", 1e9, opt_flag(o, OPT_QUIET));
    struct engine_options eo = model_engine_wish(o, path);
    eo.session = &session;
    eo.progress = model_progress;
    eo.progress_user = &p;
    struct engine *e;
    code = engine_open(&eo, &e, err);
    progress_end(&p);
    if (code) return code;
    struct tokenizer *t = NULL;
    code = dial_options_apply(o, e, err);
    if (!code && tok) code = tokenizer_create(engine_gguf(e), &t, err);
    if (!code && tok && tokenizer_n_tokens(t) != engine_shape(e)->n_vocab)
        code = mc_fail(err, MC_EFORMAT, 0, "%s: tokenizer.ggml.tokens has %zu entries, token_embd.weight %u rows", path,
                       tokenizer_n_tokens(t), (unsigned)engine_shape(e)->n_vocab);
    if (code) {
        tokenizer_destroy(t);
        engine_close(e);
        return code;
    }
    if (tok) {
        tokenizer_set_stop(t, interrupted, NULL);
        *tok = t;
    }
    *engine = e;
    return MC_OK;
}

struct session_options model_session_wish(const struct app_options *o)
{
    static const enum kern_kv kv[] = {KERN_KV_F32, KERN_KV_F16, KERN_KV_Q8}; /* in the order of the choices of --kv */
    return (struct session_options){
        .n_ctx = (uint32_t)opt_int(o, OPT_CTX), .n_batch = (uint32_t)opt_int(o, OPT_BATCH), .kv = kv[opt_int(o, OPT_KV)]};
}

enum mc_code model_session(const struct app_options *o, struct engine *engine, uint64_t ctx, uint64_t need,
                           struct session **out, struct mc_err *err)
{
    const uint64_t limit = engine_shape(engine)->n_ctx_max;
    const bool given = opt_is_set(o, OPT_CTX);
    if (given) ctx = (uint64_t)opt_int(o, OPT_CTX);
    if (given && ctx > limit)
        return mc_fail(err, MC_EARG, 0, "--ctx %" PRIu64 ": the model allows at most %" PRIu64 " tokens", ctx, limit);
    if (need > limit)
        return mc_fail(err, MC_EARG, 0, "%" PRIu64 " tokens are wanted, the model allows at most %" PRIu64, need, limit);
    if (given && need > ctx) return mc_fail(err, MC_EARG, 0, "%" PRIu64 " tokens do not fit --ctx %" PRIu64, need, ctx);
    if (ctx < need) ctx = need;
    struct session_options so = model_session_wish(o);
    so.n_ctx = (uint32_t)(ctx < limit ? ctx : limit);
    return session_create(engine, &so, out, err);
}

enum mc_code input_text(const struct app_options *o, char **text, size_t *size, struct mc_err *err)
{
    const struct opt_value *p = &o->value[OPT_PROMPT], *f = &o->value[OPT_FILE];
    if (p->text && f->text && p->source == f->source)
        return mc_fail(err, MC_EARG, 0, "both a text (-p) and a file (-f) are given; one is enough");
    if (p->text && (!f->text || p->source > f->source)) {
        *size = strlen(p->text);
        *text = malloc(*size + 1);
        if (!*text) return mc_fail(err, MC_ENOMEM, 0, "no memory for the text");
        memcpy(*text, p->text, *size + 1);
        return MC_OK;
    }
    if (!f->text && os_stdin_is_terminal()) return mc_fail(err, MC_EARG, 0, "no text: give -p TEXT, -f FILE, or pipe it in");
    return os_file_read_all(f->text ? f->text : "-", INPUT_BYTES_MAX, text, size, err);
}

bool model_progress(void *user, uint64_t done, uint64_t total)
{
    progress_update(user, done, total);
    return !os_interrupted();
}

enum mc_code check_interrupt(struct mc_err *err)
{
    return os_interrupted() ? mc_fail(err, MC_ECANCELLED, 0, "interrupted") : MC_OK;
}

enum mc_code random_ids(const struct app_options *o, uint32_t n_vocab, size_t n, int32_t **out, struct mc_err *err)
{
    uint64_t x = opt_is_set(o, OPT_SEED) ? (uint64_t)opt_int(o, OPT_SEED) : 1;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu token ids", n);
    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ids[i] = (int32_t)((x >> 33) % n_vocab);
    }
    *out = ids;
    return MC_OK;
}
