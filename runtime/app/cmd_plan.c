/* cmd_plan.c - `modchip plan`: what a model would take, and how fast it could be, before anything is loaded.
 *
 * The speed is a roofline: the bandwidth with which the same workers read memory now, over the bytes that one token reads. It
 * is not reached; `bench` says which share of it is (bus_share). */
#include "platform/os.h"
#include "runtime/app/bench_memory.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/machine_plan.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/engine/plan.h"
#include "topology/workers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct forecast {
    const char *path;
    struct engine_plan plan;
    bool pinned;
    double memory_gb_s;               /* NaN: not measured */
    const char *caveat;               /* of that figure, or "" */
    uint64_t token_bytes;             /* of weights */
    double disk_gb_s;                 /* NaN: nothing comes from the disk */
    double decode_tok_s, decode_full; /* at the beginning and at the end of the context; NaN where it does not fit */
};

/* Streaming: what the disk brings is waited for, what is in memory is read besides. */
static double tok_s(const struct forecast *f, uint64_t bytes)
{
    const double memory_s = (double)bytes * 1e-9 / f->memory_gb_s;
    if (f->plan.streams) return 1 / (memory_s + (double)f->plan.token_disk_bytes * 1e-9 / f->disk_gb_s);
    return f->plan.fits ? 1 / memory_s : (double)NAN;
}

static enum mc_code print_json(const struct forecast *f, struct mc_err *err)
{
    const struct engine_plan *const p = &f->plan;
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_text(&j, "model", f->path);
    json_out_text(&j, "isa", p->isa);
    json_out_uint(&j, "threads", p->n_threads);
    json_out_bool(&j, "pinned", f->pinned);
    json_out_uint(&j, "memory_bytes", p->memory_bytes);
    json_out_array(&j, "weights");
    for (unsigned i = 0; i < PLAN_CLASSES; i++) {
        const struct plan_class *const c = &p->weights[i];
        json_out_object(&j, NULL);
        json_out_text(&j, "class", plan_class_name((enum plan_class_id)i));
        json_out_uint(&j, "file_bytes", c->file_bytes);
        json_out_uint(&j, "packed_bytes", c->packed_bytes);
        json_out_uint(&j, "unpacked_bytes", c->plain_bytes);
        json_out_uint(&j, "mapped_bytes", c->mapped_bytes);
        json_out_uint(&j, "bytes_per_token", c->token_bytes);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_array(&j, "layers");
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct plan_layer *const l = &p->layers[il];
        json_out_object(&j, NULL);
        json_out_uint(&j, "dense_bytes", l->dense_bytes);
        json_out_uint(&j, "expert_bytes", l->expert_bytes);
        json_out_uint(&j, "experts_bytes", l->expert_bytes * p->n_expert);
        json_out_text(&j, "gate", l->gate);
        json_out_text(&j, "up", l->up);
        json_out_text(&j, "down", l->down);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_uint(&j, "ctx", p->n_ctx);
    json_out_uint(&j, "kv_bytes", p->session.kv_bytes);
    json_out_uint(&j, "activation_bytes", p->session.activation_bytes);
    json_out_uint(&j, "need_bytes", p->need_bytes);
    json_out_bool(&j, "fits", p->fits);
    json_out_uint(&j, "hugepage_bytes", p->hugepage_bytes);
    json_out_uint(&j, "resident_bytes", p->resident_bytes);
    json_out_uint(&j, "expert_cache_bytes", p->expert_cache_bytes);
    json_out_bool(&j, "streams", p->streams);
    json_out_uint(&j, "expert_all_bytes", p->expert_all_bytes);
    json_out_num(&j, "experts_cached_share", p->experts_cached);
    json_out_num(&j, "disk_gb_s", f->disk_gb_s);
    json_out_uint(&j, "disk_bytes_per_token", p->token_disk_bytes);
    json_out_uint(&j, "bytes_per_token", f->token_bytes);
    json_out_uint(&j, "kv_bytes_per_token_full", p->token_kv_bytes);
    json_out_num(&j, "mem_bw_gb_s", f->memory_gb_s);
    json_out_num(&j, "decode_tok_s", f->decode_tok_s);
    json_out_num(&j, "decode_tok_s_full_context", f->decode_full);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

static bool same_experts(const struct plan_layer *a, const struct plan_layer *b)
{
    return a->expert_bytes == b->expert_bytes && !strcmp(a->gate, b->gate) && !strcmp(a->up, b->up) &&
           !strcmp(a->down, b->down);
}

/* Runs of layers with the same kind of experts, one line each. */
static void print_layers(const struct engine_plan *p)
{
    for (uint32_t il = 0, end; il < p->n_layer; il = end) {
        const struct plan_layer *const l = &p->layers[il];
        uint64_t least = l->dense_bytes, most = l->dense_bytes;
        for (end = il + 1; end < p->n_layer && same_experts(l, &p->layers[end]); end++) {
            if (p->layers[end].dense_bytes < least) least = p->layers[end].dense_bytes;
            if (p->layers[end].dense_bytes > most) most = p->layers[end].dense_bytes;
        }
        printf("  layers %2u to %-2u     %u experts of %.2f MB (%s %s %s), dense %.1f MB", il, end - 1, p->n_expert,
               (double)l->expert_bytes * 1e-6, l->gate, l->up, l->down, (double)least * 1e-6);
        if (most > least) printf(" to %.1f MB", (double)most * 1e-6);
        printf("\n");
    }
}

static void print_table(const struct forecast *f)
{
    const struct engine_plan *const p = &f->plan;
    printf("model      %s\n", f->path);
    printf("workers    %u%s, %s kernels\n", p->n_threads, f->pinned ? ", pinned" : ", not pinned", p->isa);
    printf("%-20s %10s %10s %10s %10s %10s\n", "weights, GB", "file", "packed", "unpacked", "mapped", "a token");
    for (unsigned i = 0; i < PLAN_CLASSES; i++) {
        const struct plan_class *const c = &p->weights[i];
        printf("  %-18s %10.3f %10.3f %10.3f %10.3f %10.4f\n", plan_class_name((enum plan_class_id)i), gb(c->file_bytes),
               gb(c->packed_bytes), gb(c->plain_bytes), gb(c->mapped_bytes), gb(c->token_bytes));
    }
    print_layers(p);
    printf("context    %" PRIu32 " tokens: cache %.3f GB, activations %.3f GB\n", p->n_ctx, gb(p->session.kv_bytes),
           gb(p->session.activation_bytes));
    printf("needs      %.3f GB of %.3f GB: %s; %.3f GB of it asked for in huge pages\n", gb(p->need_bytes), gb(p->memory_bytes),
           p->fits ? "fits" : "does not fit", gb(p->hugepage_bytes));
    if (p->streams)
        printf("streams    routed experts from the disk (%.2f GB/s) into %.3f GB: %.1f %% of them at a time; %.1f MB a token "
               "if all are "
               "equally likely\n",
               f->disk_gb_s, gb(p->expert_cache_bytes), 100 * p->experts_cached, (double)p->token_disk_bytes * 1e-6);
    else if (!p->fits)
        printf("holds      %.1f %% of the routed experts (%.3f GB); about %.1f MB a token come from the disk\n",
               100 * p->experts_cached, gb(p->expert_cache_bytes), (double)p->token_disk_bytes * 1e-6);
    if (!isfinite(f->memory_gb_s))
        printf("memory     not measured: too little of it is free\n");
    else
        printf("memory     %.1f GB/s read by these workers%s\n", f->memory_gb_s, f->caveat);
    if (isfinite(f->decode_tok_s))
        printf("decode     at most %.2f tok/s, %.2f with the context full\n", f->decode_tok_s, f->decode_full);
    else if (p->session.total_bytes > p->memory_bytes)
        printf("decode     not at all: cache and activations alone take %.3f GB; a smaller --ctx or --batch takes less\n",
               gb(p->session.total_bytes));
    else if (!p->fits)
        printf("decode     no faster than the disk brings %.1f MB for each token\n", (double)p->token_disk_bytes * 1e-6);
}

static enum mc_code foresee(const struct app_options *o, struct workers *team, struct forecast *f, struct mc_err *err)
{
    const struct engine_options eo = model_engine_wish(o, f->path);
    const struct session_options so = model_session_wish(o);
    struct memory_reader *reader;
    enum mc_code code = engine_plan_make(&eo, &so, (uint64_t)opt_int(o, OPT_MEMORY), team, f->pinned, &f->plan, err);
    if (!code) code = check_interrupt(err);
    if (!code) code = memory_reader_create(team, &reader, err);
    if (code) return code;
    f->memory_gb_s = memory_reader_measure(reader);
    f->caveat = memory_reader_caveat(reader);
    memory_reader_destroy(reader);
    f->disk_gb_s = (double)NAN;
    if (f->plan.streams) code = bench_disk(o, &f->disk_gb_s, err);
    if (code) return code;
    for (unsigned i = 0; i < PLAN_CLASSES; i++) f->token_bytes += f->plan.weights[i].token_bytes;
    f->decode_tok_s = tok_s(f, f->token_bytes);
    f->decode_full = tok_s(f, f->token_bytes + f->plan.token_kv_bytes);
    return MC_OK;
}

enum mc_code cmd_plan(const struct app_options *o, struct mc_err *err)
{
    char path[MODEL_PATH_MAX];
    struct machine_plan *machine;
    struct workers *team = NULL;
    struct forecast f = {.path = path};
    enum mc_code code = model_path(o, path, err);
    if (!code && opt_is_set(o, OPT_MEMORY) && opt_int(o, OPT_MEMORY) == 0)
        code = mc_fail(err, MC_EARG, 0, "--memory: a plan for 0 bytes; expected a size like 12G");
    if (code) return code;
    say_openmp(o);
    code = machine_plan_make(o, &machine, err);
    if (code) return code;
    f.pinned = machine->place.pinned;
    code = workers_create(&machine->place, &team, err);
    free(machine);
    if (!code) code = foresee(o, team, &f, err);
    workers_destroy(team);
    if (code) return code;
    if (opt_flag(o, OPT_JSON)) return print_json(&f, err);
    print_table(&f);
    return MC_OK;
}
