/* cmd_bench.c - `modchip bench`: prefill, decode and loading, beside the memory bandwidth of the same run.
 *
 * One repeat is: memory bandwidth, prefill, decode, bandwidth once more; so all see the same minutes of the machine. Every
 * repeat starts from the same state (a snapshot at --depth). One short round runs before anything counts. Bytes are counted
 * from the tensors as the file stores them plus the cache rows that a token in the middle of the measured stretch reads. */
#include "io/gguf/gguf.h"
#include "platform/os.h"
#include "runtime/app/bench_memory.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/progress.h"
#include "runtime/app/streaming_out.h"
#include "runtime/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STREAM_PROBE_BYTES ((uint64_t)1 << 30)

struct figure {
    double median, min, max;
};

struct bench {
    const struct app_options *o;
    struct engine *engine;
    struct session *session;
    struct session_snapshot *start;
    struct memory_reader *memory;
    int32_t *ids; /* depth, then enough for the longer of prefill and decode */
    uint32_t depth, n_prefill, n_decode, n_repeats;
    double *prefill_s, *decode_s, *memory_gb_s;
    double load_s;       /* opening without first touch (--load); and every byte of the file, if it stays mapped */
    uint64_t load_bytes; /* read in that time */
    double disk_gb_s[2]; /* --load: before and after; NaN: not measured */
    uint64_t token_bytes, peak_before; /* before the memory reader came */
    struct engine_facts facts;
    /* With streaming; of all decoding rounds together, and of all prompts. */
    struct streamed {
        struct engine_streaming n;
        double seconds;
    } decoded, prefilled;
    double stream_disk_gb_s[2]; /* raw, before and after */
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v. */
static struct figure figure_of(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return (struct figure){n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[0], v[n - 1]};
}

static struct figure rates(double *seconds, size_t n, uint32_t tokens)
{
    for (size_t i = 0; i < n; i++) seconds[i] = tokens / seconds[i];
    return figure_of(seconds, n);
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(os_clock_ns() - start_ns + 1) * 1e-9;
}

static enum mc_code make_ids(struct bench *b, struct mc_err *err)
{
    const size_t n = (size_t)b->depth + (b->n_prefill > b->n_decode ? b->n_prefill : b->n_decode);
    return random_ids(b->o, engine_shape(b->engine)->n_vocab, n, &b->ids, err);
}

/* Decodes n tokens one by one from the start state. */
static enum mc_code decode(struct bench *b, uint32_t n, double *seconds, struct mc_err *err)
{
    enum mc_code code = session_snapshot_restore(b->session, b->start, err);
    const uint64_t start = os_clock_ns();
    for (uint32_t i = 0; i < n && !code; i++) {
        code = session_decode(b->session, b->ids[b->depth + i], err);
        if (!code) code = check_interrupt(err); /* a short append does not ask the progress function */
    }
    *seconds = seconds_since(start);
    return code;
}

static enum mc_code prefill(struct bench *b, uint32_t n, double *seconds, struct mc_err *err)
{
    enum mc_code code = session_snapshot_restore(b->session, b->start, err);
    if (code) return code;
    const uint64_t start = os_clock_ns();
    code = session_append(b->session, b->ids + b->depth, n, err);
    *seconds = seconds_since(start);
    return code ? code : check_interrupt(err);
}

/* Adds what streaming did since `before`. */
static void add_streamed(struct streamed *to, const struct engine *e, const struct engine_streaming *before, double seconds)
{
    struct engine_streaming now;
    engine_streaming_get(e, &now);
    now = streaming_since(&now, before);
    to->n = streaming_sum(&to->n, &now);
    to->seconds += seconds;
}

static enum mc_code measure(struct bench *b, struct mc_err *err)
{
    double ignored;
    enum mc_code code = MC_OK;
    /* One round that does not count, as llama.cpp's bench has it: the working memory is touched for the first time. */
    if (b->n_prefill) code = prefill(b, b->n_prefill, &ignored, err);
    if (!code && b->n_decode) code = decode(b, b->n_decode < 2 ? b->n_decode : 2, &ignored, err);
    struct progress p;
    if (!code) code = engine_streaming_measure(b->engine, STREAM_PROBE_BYTES, &b->stream_disk_gb_s[0], err);
    progress_begin(&p, "bench", "repeats", 1, opt_flag(b->o, OPT_QUIET));
    for (uint32_t i = 0; i < b->n_repeats && !code; i++) {
        b->memory_gb_s[i] = memory_reader_measure(b->memory);
        struct engine_streaming before, between;
        engine_streaming_get(b->engine, &before);
        if (b->n_prefill) code = prefill(b, b->n_prefill, &b->prefill_s[i], err);
        add_streamed(&b->prefilled, b->engine, &before, b->prefill_s[i]);
        engine_streaming_get(b->engine, &between);
        if (!code && b->n_decode) code = decode(b, b->n_decode, &b->decode_s[i], err);
        add_streamed(&b->decoded, b->engine, &between, b->decode_s[i]);
        /* The better of before and after: whoever else uses the bus makes it look slower than it is. */
        const double after = memory_reader_measure(b->memory);
        if (after > b->memory_gb_s[i]) b->memory_gb_s[i] = after;
        progress_update(&p, i + 1, b->n_repeats);
    }
    progress_end(&p);
    if (!code) code = engine_streaming_measure(b->engine, STREAM_PROBE_BYTES, &b->stream_disk_gb_s[1], err);
    return code;
}

static bool until_interrupt(void *user, uint64_t done, uint64_t total)
{
    (void)user, (void)done, (void)total;
    return !os_interrupted();
}

/* Session at the start depth, its snapshot, room for the times. */
static enum mc_code prepare(struct bench *b, struct mc_err *err)
{
    const uint64_t need = (uint64_t)b->depth + (b->n_prefill > b->n_decode ? b->n_prefill : b->n_decode);
    enum mc_code code = model_session(b->o, b->engine, need ? need : 1, need, &b->session, err);
    if (!code) code = make_ids(b, err);
    if (code) return code;
    if (b->depth) {
        struct progress p;
        progress_begin(&p, "context", "tokens", 1, opt_flag(b->o, OPT_QUIET));
        session_set_progress(b->session, model_progress, &p);
        code = session_append(b->session, b->ids, b->depth, err);
        progress_end(&p);
    }
    session_set_progress(b->session, until_interrupt, NULL);
    if (!code) code = session_snapshot_take(b->session, &b->start, err);
    b->peak_before = os_rss_peak_bytes();
    /* Its buffer is as large as a model's working set, which is more than a ceiling leaves. */
    if (!code && !opt_is_set(b->o, OPT_MEMORY)) code = memory_reader_create(engine_workers(b->engine), &b->memory, err);
    if (code) return code;
    b->token_bytes = b->facts.token_bytes_layers + b->facts.token_bytes_head +
                     session_token_kv_bytes(b->session, b->depth + b->n_decode / 2);
    b->prefill_s = calloc(b->n_repeats, sizeof(double));
    b->decode_s = calloc(b->n_repeats, sizeof(double));
    b->memory_gb_s = calloc(b->n_repeats, sizeof(double));
    if (!b->prefill_s || !b->decode_s || !b->memory_gb_s) return mc_fail(err, MC_ENOMEM, 0, "no memory for the figures");
    return MC_OK;
}

/* ---- output ----------------------------------------------------------------------------------------------------------- */

static void json_figure(struct json_out *j, const char *key, struct figure f)
{
    json_out_object(j, key);
    json_out_num(j, "median", f.median);
    json_out_num(j, "min", f.min);
    json_out_num(j, "max", f.max);
    json_out_object_end(j);
}

struct summary {
    struct figure prefill, decode;
    double read_gb_s, memory_gb_s, load_gb_s, disk_gb_s;
    double intake_gb_s; /* of loading, without opening the file and choosing the layout */
    uint64_t rss_peak;
};

/* The memory reader was held while everything was measured, and is no part of running a model. */
static uint64_t peak_without_reader(const struct bench *b)
{
    const uint64_t peak = os_rss_peak_bytes() - memory_reader_bytes(b->memory);
    return peak > b->peak_before ? peak : b->peak_before;
}

static struct summary summarize(struct bench *b)
{
    const struct figure none = {(double)NAN, (double)NAN, (double)NAN};
    struct summary s = {.prefill = none, .decode = none, .read_gb_s = (double)NAN, .memory_gb_s = (double)NAN};
    s.load_gb_s = (double)b->load_bytes * 1e-9 / b->load_s;
    s.intake_gb_s = (double)b->facts.read_bytes * 1e-9 / b->facts.read_s;
    s.disk_gb_s = (b->disk_gb_s[0] + b->disk_gb_s[1]) / 2;
    s.rss_peak = peak_without_reader(b);
    if (!b->session) return s;
    if (b->n_prefill) s.prefill = rates(b->prefill_s, b->n_repeats, b->n_prefill);
    if (b->n_decode) s.decode = rates(b->decode_s, b->n_repeats, b->n_decode);
    s.read_gb_s = s.decode.median * (double)b->token_bytes * 1e-9;
    s.memory_gb_s = figure_of(b->memory_gb_s, b->n_repeats).median;
    return s;
}

/* NaN when the weights have no memory of their own. */
static double huge_share(const struct bench *b)
{
    const uint64_t huge = b->facts.pages_1g_bytes + b->facts.pages_2m_bytes + b->facts.pages_thp_bytes;
    return (double)huge / (double)(huge + b->facts.pages_normal_bytes);
}

static double stream_disk_gb_s(const struct bench *b)
{
    return (b->stream_disk_gb_s[0] + b->stream_disk_gb_s[1]) / 2;
}

static void json_streamed(struct json_out *j, const char *key, const struct bench *b, const struct streamed *s)
{
    json_out_object(j, key);
    streaming_json(j, &s->n);
    json_out_num(j, "seconds", s->seconds);
    json_out_num(j, "disk_share", streaming_gb_s(&s->n) / stream_disk_gb_s(b));
    json_out_object_end(j);
}

static enum mc_code print_json(const struct bench *b, const struct summary *s, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_text(&j, "isa", b->facts.isa);
    json_out_uint(&j, "threads", b->facts.n_threads);
    json_out_bool(&j, "pinned", b->facts.pinned);
    json_out_uint(&j, "tensor_bytes", b->facts.tensor_bytes);
    json_out_uint(&j, "packed_file_bytes", b->facts.packed_file_bytes);
    json_out_uint(&j, "packed_bytes", b->facts.packed_bytes);
    json_out_uint(&j, "pages_1g_bytes", b->facts.pages_1g_bytes);
    json_out_uint(&j, "pages_2m_bytes", b->facts.pages_2m_bytes);
    json_out_uint(&j, "pages_thp_bytes", b->facts.pages_thp_bytes);
    json_out_uint(&j, "pages_normal_bytes", b->facts.pages_normal_bytes);
    json_out_num(&j, "huge_share", huge_share(b));
    if (b->session) {
        json_out_text(&j, "kv", opt_text(b->o, OPT_KV));
        json_out_uint(&j, "depth", b->depth);
        json_out_uint(&j, "prefill_tokens", b->n_prefill);
        json_out_uint(&j, "decode_tokens", b->n_decode);
        json_out_uint(&j, "repeats", b->n_repeats);
        json_figure(&j, "prefill_tok_s", s->prefill);
        json_figure(&j, "decode_tok_s", s->decode);
        json_out_uint(&j, "bytes_per_token", b->token_bytes);
        json_out_uint(&j, "bytes_per_token_head", b->facts.token_bytes_head);
        json_out_num(&j, "read_gb_s", s->read_gb_s);
        json_out_num(&j, "mem_bw_gb_s", s->memory_gb_s);
        json_out_uint(&j, "mem_bw_buffer_bytes", memory_reader_bytes(b->memory));
        json_out_num(&j, "bus_share", s->read_gb_s / s->memory_gb_s);
    }
    if (b->session && b->facts.streams) {
        json_out_object(&j, "streaming");
        json_out_uint(&j, "expert_cache_bytes", b->facts.expert_cache_bytes);
        json_out_uint(&j, "expert_all_bytes", b->facts.expert_all_bytes);
        json_out_num(&j, "disk_gb_s", stream_disk_gb_s(b));
        if (b->n_prefill) json_streamed(&j, "prefill", b, &b->prefilled);
        if (b->n_decode) json_streamed(&j, "decode", b, &b->decoded);
        json_out_array(&j, "layer_hit_rate");
        for (uint32_t il = 0; il < engine_shape(b->engine)->n_layer; il++) {
            uint64_t hits, misses;
            engine_streaming_layer(b->engine, il, &hits, &misses);
            json_out_num(&j, NULL, (double)hits / (double)(hits + misses));
        }
        json_out_array_end(&j);
        json_out_object_end(&j);
    }
    json_out_num(&j, "load_s", b->load_s);
    json_out_num(&j, "load_gb_s", s->load_gb_s);
    json_out_text(&j, "io", b->facts.io);
    json_out_bool(&j, "io_direct", b->facts.io_direct);
    json_out_bool(&j, "io_from_cache", b->facts.io_from_cache);
    if (!b->session) {
        json_out_num(&j, "disk_gb_s", s->disk_gb_s);
        json_out_num(&j, "intake_gb_s", s->intake_gb_s);
        json_out_num(&j, "disk_share", s->intake_gb_s / s->disk_gb_s);
        json_out_num(&j, "first_touch_s", b->facts.touch_s);
    }
    json_out_uint(&j, "rss_peak_bytes", s->rss_peak);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static void print_streamed(const char *name, const struct bench *b, const struct streamed *s)
{
    const double gb_s = streaming_gb_s(&s->n);
    printf("  %-14s %.1f %% of the experts were in memory; %.2f GB read at %.2f GB/s, %.1f %% of the disk\n", name,
           100 * streaming_hit_rate(&s->n), (double)s->n.bytes_read * 1e-9, gb_s, 100 * gb_s / stream_disk_gb_s(b));
    printf("  %-14s the disk was busy %.1f %% of the time, computing waited for it %.1f %%", "",
           1e-7 * (double)s->n.busy_ns / s->seconds, 1e-7 * (double)s->n.stall_ns / s->seconds);
    if (s->n.guesses)
        printf("; of %llu guessed experts %.1f %% were used", (unsigned long long)s->n.guesses,
               100 * (double)s->n.guesses_used / (double)s->n.guesses);
    printf("\n");
}

static void print_table(const struct bench *b, const struct summary *s)
{
    printf("kernels          %s, %u threads%s\n", b->facts.isa, b->facts.n_threads, b->facts.pinned ? ", pinned" : "");
    printf("weights          %.1f MB in the file, of them %.1f MB packed into %.1f MB of memory\n",
           (double)b->facts.tensor_bytes * 1e-6, (double)b->facts.packed_file_bytes * 1e-6,
           (double)b->facts.packed_bytes * 1e-6);
    if (b->facts.packed_bytes)
        printf("huge pages       %.1f %% of that memory: %.1f MB of 1 GiB, %.1f MB of 2 MiB, %.1f MB transparent\n",
               100 * huge_share(b), (double)b->facts.pages_1g_bytes * 1e-6, (double)b->facts.pages_2m_bytes * 1e-6,
               (double)b->facts.pages_thp_bytes * 1e-6);
    if (b->session) {
        printf("context          starts at %u tokens, cache %s; median of %u (lowest .. highest)\n", b->depth,
               opt_text(b->o, OPT_KV), b->n_repeats);
        if (b->n_prefill)
            printf("prefill          %.2f tok/s (%.2f .. %.2f), %u tokens\n", s->prefill.median, s->prefill.min, s->prefill.max,
                   b->n_prefill);
        if (b->n_decode) {
            printf("decode           %.2f tok/s (%.2f .. %.2f), %u tokens\n", s->decode.median, s->decode.min, s->decode.max,
                   b->n_decode);
            printf("bytes per token  %.1f MB, of them %.1f MB head\n", (double)b->token_bytes * 1e-6,
                   (double)b->facts.token_bytes_head * 1e-6);
            printf("reads            %.2f GB/s", s->read_gb_s);
            if (b->memory) printf(", %.1f %% of what the memory gives", 100 * s->read_gb_s / s->memory_gb_s);
            printf("\n");
        }
        if (b->memory)
            printf("memory           %.2f GB/s read by the same threads%s\n", s->memory_gb_s, memory_reader_caveat(b->memory));
        else
            printf("memory           not measured: too little of it is free%s\n",
                   opt_is_set(b->o, OPT_MEMORY) ? " below --memory" : "");
    }
    if (b->session && b->facts.streams) {
        printf("expert cache     %.1f MB of %.1f MB; disk %.2f GB/s in slices (%.2f before, %.2f after)\n",
               (double)b->facts.expert_cache_bytes * 1e-6, (double)b->facts.expert_all_bytes * 1e-6, stream_disk_gb_s(b),
               b->stream_disk_gb_s[0], b->stream_disk_gb_s[1]);
        if (b->n_prefill) print_streamed("prefill", b, &b->prefilled);
        if (b->n_decode) print_streamed("decode", b, &b->decoded);
    }
    printf("loading          %.3f s, %.2f GB/s, by %s%s\n", b->load_s, s->load_gb_s, b->facts.io,
           b->facts.io_from_cache ? ", what the file cache held from there"
           : b->facts.io_direct   ? " past the file cache"
                                  : "");
    if (!b->session) {
        printf("first touch      %.3f s, not counted above\n", b->facts.touch_s);
        printf("intake           %.2f GB/s read and packed in %.3f s of that, %.1f %% of what the disk gives\n", s->intake_gb_s,
               b->facts.read_s, 100 * s->intake_gb_s / s->disk_gb_s);
        printf("disk             %.2f GB/s in the same blocks (%.2f before, %.2f after)\n", s->disk_gb_s, b->disk_gb_s[0],
               b->disk_gb_s[1]);
    }
    printf("memory peak      %.1f MB\n", (double)s->rss_peak * 1e-6);
}

static void bench_free(struct bench *b)
{
    session_snapshot_destroy(b->start);
    session_destroy(b->session);
    memory_reader_destroy(b->memory);
    free(b->ids);
    free(b->prefill_s);
    free(b->decode_s);
    free(b->memory_gb_s);
    engine_close(b->engine);
}

/* What stays mapped comes when it is first used, which must not happen inside a measured round, so it is read here. What is
 * resident was read while the model was opened. */
static enum mc_code finish_loading(struct bench *b, struct mc_err *err)
{
    engine_facts_get(b->engine, &b->facts);
    b->load_s = b->facts.load_s - b->facts.touch_s;
    b->load_bytes = b->facts.read_bytes;
    double read_s = 0;
    if (b->facts.mapped_bytes <= b->facts.tensor_bytes / 10) return MC_OK;
    const enum mc_code code = bench_read_model(engine_gguf(b->engine), engine_workers(b->engine), &read_s, err);
    if (b->load_bytes == 0) {
        b->load_s += read_s;
        b->load_bytes = b->facts.file_bytes;
    }
    return code;
}

/* Lossy settings: the weights that the decoded tokens did not read. */
static void subtract_saved(struct bench *b)
{
    struct engine_counts c;
    engine_counts_get(b->engine, &c);
    if (c.steps_decoded) b->token_bytes -= c.bytes_saved / c.steps_decoded;
}

enum mc_code cmd_bench(const struct app_options *o, struct mc_err *err)
{
    struct bench b = {
        .o = o,
        .depth = (uint32_t)opt_int(o, OPT_DEPTH),
        .n_prefill = (uint32_t)opt_int(o, OPT_PREFILL),
        .n_decode = opt_is_set(o, OPT_PREDICT) ? (uint32_t)opt_int(o, OPT_PREDICT) : 32,
        .n_repeats = (uint32_t)opt_int(o, OPT_REPEATS),
    };
    const bool load = opt_flag(o, OPT_LOAD);
    enum mc_code code = load ? bench_disk(o, &b.disk_gb_s[0], err) : MC_OK;
    if (!code) code = model_open(o, &b.engine, NULL, err);
    if (!code) code = finish_loading(&b, err);
    if (!code && load) code = bench_disk(o, &b.disk_gb_s[1], err);
    if (!code && !load) {
        code = prepare(&b, err);
        if (!code) code = measure(&b, err);
        subtract_saved(&b);
    }
    if (!code) {
        const struct summary s = summarize(&b);
        if (opt_flag(o, OPT_JSON))
            code = print_json(&b, &s, err);
        else
            print_table(&b, &s);
    }
    bench_free(&b);
    return code;
}
