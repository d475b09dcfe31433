/* cmd_profile.c - `modchip profile`: where prefill and decode spend their time, by operator and by layer.
 *
 * Bytes are those of the tensors as the file stores them (an expert that a chunk does not use is not read) and of the cache
 * rows. Cycles: time x the core clock measured just before, summed over the workers, so that multiply-adds a cycle are those of
 * one core.
 */
#include "kernels/check/checkkern.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/engine/engine.h"
#include "runtime/model/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct profile {
    const struct app_options *o;
    struct engine *engine;
    struct session *session;
    const struct trace *trace;
    int32_t *ids;
    uint32_t depth, n_layer;
    unsigned n_threads;
    double ghz;
    char title[64]; /* printed once, when there is something below it */
    bool json;
    struct json_out out;
};

struct line {
    const char *name;
    struct trace_cell c;
    uint64_t phase_ns; /* 100 % */
};

static void add(struct trace_cell *sum, struct trace_cell c)
{
    sum->calls += c.calls;
    sum->ns += c.ns;
    sum->wait_ns += c.wait_ns;
    sum->bytes += c.bytes;
    sum->macs += c.macs;
}

static void print_line(struct profile *p, const struct line *l)
{
    const double ns = (double)l->c.ns, gb_s = (double)l->c.bytes / ns;
    const double macs_cycle = (double)l->c.macs / (ns * p->ghz * p->n_threads);
    if (p->json) {
        json_out_object(&p->out, NULL);
        json_out_text(&p->out, "op", l->name);
        json_out_uint(&p->out, "calls", l->c.calls);
        json_out_num(&p->out, "ms", ns * 1e-6);
        json_out_num(&p->out, "share", ns / (double)l->phase_ns);
        json_out_num(&p->out, "wait_share", (double)l->c.wait_ns / ns);
        json_out_uint(&p->out, "bytes", l->c.bytes);
        json_out_num(&p->out, "gb_s", gb_s);
        json_out_num(&p->out, "macs_per_cycle", macs_cycle);
        json_out_object_end(&p->out);
        return;
    }
    printf("%-12s %7llu %10.3f %6.1f %% %6.1f %% %9.1f %8.2f %8.2f\n", l->name, (unsigned long long)l->c.calls, ns * 1e-6,
           100 * ns / (double)l->phase_ns, 100 * (double)l->c.wait_ns / ns, (double)l->c.bytes * 1e-6, gb_s, macs_cycle);
}

/* The operators, then the layers and what is around them. */
static void print_phase(struct profile *p, const char *name, uint32_t tokens)
{
    struct trace_cell ops[TRACE_OPS] = {{0}}, all = {0};
    for (uint32_t il = 0; il <= p->n_layer; il++)
        for (unsigned op = 0; op < TRACE_OPS; op++) add(&ops[op], trace_cell_at(p->trace, il, (enum trace_op)op));
    for (unsigned op = 0; op < TRACE_OPS; op++) add(&all, ops[op]);
    if (p->json) {
        json_out_object(&p->out, name);
        json_out_uint(&p->out, "tokens", tokens);
        json_out_num(&p->out, "tok_s", tokens / ((double)all.ns * 1e-9));
        json_out_array(&p->out, "operators");
    } else {
        printf("%s%s: %u tokens, %.2f tok/s\n", p->title, name, tokens, tokens / ((double)all.ns * 1e-9));
        printf("%-12s %7s %10s %8s %8s %9s %8s %8s\n", "", "calls", "ms", "share", "waiting", "MB", "GB/s", "MAC/cyc");
    }
    for (unsigned op = 0; op < TRACE_OPS; op++)
        if (ops[op].calls) print_line(p, &(struct line){trace_op_name((enum trace_op)op), ops[op], all.ns});
    if (p->json) {
        json_out_array_end(&p->out);
        json_out_array(&p->out, "layers");
    }
    for (uint32_t il = 0; il <= p->n_layer; il++) {
        struct trace_cell layer = {0};
        char label[24];
        for (unsigned op = 0; op < TRACE_OPS; op++) add(&layer, trace_cell_at(p->trace, il, (enum trace_op)op));
        layer.calls = trace_cell_at(p->trace, il, il == p->n_layer ? TRACE_EMBED : TRACE_INPUTS).calls;
        snprintf(label, sizeof label, il == p->n_layer ? "outside" : "layer %u", (unsigned)il);
        print_line(p, &(struct line){label, layer, all.ns});
    }
    if (p->json) {
        json_out_array_end(&p->out);
        json_out_object_end(&p->out);
    } else {
        print_line(p, &(struct line){"all", all, all.ns});
        p->title[0] = '\0';
        printf("\n");
    }
}

static enum mc_code run_step(struct profile *p, uint32_t at, uint32_t n, bool decode, struct mc_err *err)
{
    const int32_t *ids = p->ids + p->depth + at;
    return decode ? session_decode(p->session, *ids, err) : session_append(p->session, ids, n, err);
}

/* Appends n tokens, at once or decoding one by one, and prints where the time went; then the session is back at the start
 * depth. */
static enum mc_code phase(struct profile *p, const char *name, uint32_t n, bool decode, struct mc_err *err)
{
    enum mc_code code = session_rewind(p->session, p->depth, err);
    const uint32_t step = decode ? 1 : n;
    if (!code) code = run_step(p, 0, step, decode, err); /* first touch of buffers */
    if (!code) code = session_rewind(p->session, p->depth, err);
    p->ghz = checkkern_ghz();
    if (!code) code = session_trace(p->session, &p->trace, err);
    for (uint32_t at = 0; at < n && !code; at += step) {
        code = run_step(p, at, step, decode, err);
        if (!code) code = check_interrupt(err);
    }
    if (!code) print_phase(p, name, n);
    return code;
}

static enum mc_code measure(struct profile *p, uint32_t n_prefill, uint32_t n_decode, struct mc_err *err)
{
    const uint64_t need = (uint64_t)p->depth + (n_prefill > n_decode ? n_prefill : n_decode);
    enum mc_code code = model_session(p->o, p->engine, need ? need : 1, need, &p->session, err);
    if (!code) code = random_ids(p->o, engine_shape(p->engine)->n_vocab, (size_t)need, &p->ids, err);
    if (!code && p->depth) code = session_append(p->session, p->ids, p->depth, err);
    if (!code && n_prefill) code = phase(p, "prefill", n_prefill, false, err);
    if (!code && n_decode) code = phase(p, "decode", n_decode, true, err);
    return code;
}

enum mc_code cmd_profile(const struct app_options *o, struct mc_err *err)
{
    struct profile p = {.o = o, .depth = (uint32_t)opt_int(o, OPT_DEPTH), .json = opt_flag(o, OPT_JSON)};
    const uint32_t n_decode = opt_is_set(o, OPT_PREDICT) ? (uint32_t)opt_int(o, OPT_PREDICT) : 32;
    struct engine_facts facts = {0};
    json_out_init(&p.out);
    enum mc_code code = model_open(o, &p.engine, NULL, err);
    if (!code) {
        engine_facts_get(p.engine, &facts);
        p.n_threads = facts.n_threads;
        p.n_layer = engine_shape(p.engine)->n_layer;
        if (p.json) {
            json_out_object(&p.out, NULL);
            json_out_text(&p.out, "isa", facts.isa);
            json_out_uint(&p.out, "threads", facts.n_threads);
        } else {
            snprintf(p.title, sizeof p.title, "%s, %u threads%s\n\n", facts.isa, facts.n_threads,
                     facts.pinned ? ", pinned" : "");
        }
        code = measure(&p, (uint32_t)opt_int(o, OPT_PREFILL), n_decode, err);
    }
    if (!code && p.json) {
        json_out_num(&p.out, "ghz", p.ghz);
        json_out_object_end(&p.out);
        code = json_out_finish(&p.out, err);
    }
    json_out_deinit(&p.out);
    session_destroy(p.session);
    free(p.ids);
    engine_close(p.engine);
    return code;
}
