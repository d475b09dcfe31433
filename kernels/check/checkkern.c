/* checkkern.c - walks over the slots of the kernel table and the instruction sets. See checkkern.h; the tools are in ck.c. */
#include "kernels/check/checkkern.h"

#include "kernels/check/ck.h"
#include "kernels/cpu_flags.h"
#include "platform/base/log.h"
#include "platform/os.h"

#include <stdio.h>

enum { SLOTS = 24, SLOT_BYTES = 4 << 20 };

struct op {
    const char *name;
    size_t offset; /* of the slot in struct kern_table */
    ck_fn check;
    unsigned which;
    bool optional; /* an empty slot is no finding */
};

typedef void (*any_fn)(void); /* every slot is a function pointer of this size */

/* clang-format off */
#define SLOT(name) {#name, offsetof(struct kern_table, name), check_##name, 0, false}
/* clang-format on */
static const struct op float_ops[] = {
    SLOT(rms_norm), SLOT(sum_squares), SLOT(rope),        SLOT(hadamard),      SLOT(swiglu),
    SLOT(gate),     SLOT(combine),     SLOT(pool),        SLOT(hyper_read),    SLOT(hyper_write),
    SLOT(kv_store), SLOT(kv_load),     SLOT(attend_part), SLOT(attend_finish), SLOT(index_scores),
};

struct walk {
    struct ck ck;
    const struct ck_tables *set;
    size_t n_failed;
    bool stopped;
    check_row_fn fn;
    void *user;
};

static void build_tables(struct ck_tables *set, uint32_t flags)
{
    const uint32_t wanted[CK_TABLES_MAX] = {0, KERN_AVX2, KERN_AVX2 | KERN_AVX_VNNI, KERN_AVX2 | KERN_AVX_VNNI | KERN_AVX512};
    set->n = 0;
    for (size_t i = 0; i < CK_TABLES_MAX; i++) {
        const uint32_t needed = wanted[i] & ~(uint32_t)(i == 3 ? KERN_AVX_VNNI : 0);
        if ((flags & needed) != needed) continue;
        kern_table_init(&set->table[set->n], flags & wanted[i]);
        const char *isa = set->table[set->n].isa;
        set->isa[set->n++] = i == 2 && !strcmp(isa, "avx2") ? "avx2_vnni" : isa;
    }
}

static any_fn slot_of(const struct kern_table *t, size_t offset)
{
    any_fn fn;
    memcpy(&fn, (const char *)t + offset, sizeof fn);
    return fn;
}

static bool seen_before(const struct walk *w, size_t table, size_t offset)
{
    for (size_t i = 0; i < table; i++)
        if (slot_of(&w->set->table[i], offset) == slot_of(&w->set->table[table], offset)) return true;
    return false;
}

static struct check_row make_row(const struct walk *w, const struct op *op, size_t table, const struct ck_numbers *n,
                                 double scalar_ns)
{
    struct check_row row = {op->name, w->set->isa[table], ck_ok(&w->ck), w->ck.detail, 0, 0, 0, 0};
    if (n->ns > 0) {
        row.weights_per_cycle = n->weights / (n->ns * w->ck.timer.ghz);
        row.gb_s = n->bytes / n->ns;
        row.speedup = scalar_ns / n->ns;
    }
    if (n->ns8 > 0) row.products_per_cycle8 = 8 * n->weights / (n->ns8 * w->ck.timer.ghz);
    return row;
}

static bool any_has(const struct ck_tables *set, size_t offset)
{
    for (size_t i = 0; i < set->n; i++)
        if (slot_of(&set->table[i], offset)) return true;
    return false;
}

/* Checks one slot at every instruction set that has a version of its own. The scalar table has nothing to be compared with: it
 * is run for its time. */
static void run_op(struct walk *w, const struct op *op)
{
    const struct check_options *opt = w->ck.opt;
    double scalar_ns = 0;
    if (opt->only && !strstr(op->name, opt->only)) return;
    if (op->optional && !any_has(w->set, op->offset)) return;
    for (size_t i = 0; i < w->set->n && !w->stopped; i++) {
        struct ck_numbers n = {0, 0, 0, 0};
        const bool scalar = i == 0, present = slot_of(&w->set->table[i], op->offset) != NULL;
        bool shown = !opt->isa || !strcmp(opt->isa, w->set->isa[i]);
        if (scalar && (present || op->optional) && !opt->bench) continue;
        if (!scalar && (present ? !shown || seen_before(w, i, op->offset) : op->optional)) continue;
        if (scalar && !present) shown = false;

        w->stopped = opt->stop && opt->stop(opt->stop_user);
        if (w->stopped) break;
        mc_log(MC_LOG_TRACE, "check: kernel=%s isa=%s", op->name, w->set->isa[i]); /* names the culprit of a fault */
        w->ck.t = &w->set->table[i];
        w->ck.random = opt->seed;
        w->ck.detail[0] = 0;
        if (present || op->optional)
            op->check(&w->ck, op->which, &n);
        else
            ck_fail(&w->ck, "the slot is empty");
        if (scalar) scalar_ns = n.ns;
        if (!shown && ck_ok(&w->ck)) continue;
        const struct check_row row = make_row(w, op, i, &n, scalar_ns);
        w->n_failed += !row.ok;
        w->fn(w->user, &row);
    }
}

static void run_types(struct walk *w, const char *noun, size_t offset, size_t slot_size, ck_fn check, bool optional)
{
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        char name[32];
        if (!quant_info(type) || type == QUANT_I32) continue;
        snprintf(name, sizeof name, "%s %s", noun, quant_info(type)->name);
        run_op(w, &(struct op){name, offset + type * slot_size, check, type, optional});
    }
}

static void run_all(struct walk *w)
{
    static const char *const acts[QUANT_ACT_COUNT] = {"quantize f32", "quantize q8_0", "quantize q8_K"};
    const struct kern_table *t = NULL;
    run_types(w, "matmul", offsetof(struct kern_table, matmul), sizeof t->matmul[0], check_matmul, false);
    run_types(w, "packed", offsetof(struct kern_table, packed), sizeof t->packed[0], check_packed, true);
    run_types(w, "pack", offsetof(struct kern_table, pack), sizeof t->pack[0], check_pack, true);
    run_types(w, "dequantize", offsetof(struct kern_table, dequantize), sizeof t->dequantize[0], check_dequantize, false);
    for (unsigned act = 0; act < QUANT_ACT_COUNT; act++)
        run_op(w, &(struct op){acts[act], offsetof(struct kern_table, quantize) + act * sizeof t->quantize[0], check_quantize,
                               act, false});
    for (size_t i = 0; i < ARRAY_LEN(float_ops); i++) run_op(w, &float_ops[i]);
}

enum mc_code ck_run_tables(const struct ck_tables *set, const struct check_options *opt, check_row_fn fn, void *user,
                           size_t *n_failed, struct mc_err *err)
{
    struct os_caps caps;
    struct walk w = {.set = set, .fn = fn, .user = user, .ck = {.opt = opt, .ref = &set->table[0]}};
    void *pool;
    os_caps_get(&caps);
    w.ck.page_bytes = caps.page_bytes;
    w.ck.slot_bytes = SLOT_BYTES + caps.page_bytes; /* the last page is the fence */
    w.ck.pool_bytes = SLOTS * w.ck.slot_bytes;
    enum mc_code code = os_mem_alloc(w.ck.pool_bytes, OS_MEM_PLAIN, "kernel checks", &pool, err);
    if (code != MC_OK) return code;
    w.ck.pool = pool;
    for (size_t i = 0; i < SLOTS && code == MC_OK; i++)
        code = os_mem_fence(w.ck.pool + i * w.ck.slot_bytes + SLOT_BYTES, caps.page_bytes, err);
    if (code == MC_OK) {
        run_all(&w);
        *n_failed = w.n_failed;
        if (w.stopped) code = mc_fail(err, MC_ECANCELLED, 0, "interrupted");
    }
    os_mem_free(pool, w.ck.pool_bytes);
    return code;
}

enum mc_code check_run(const struct check_options *opt, check_row_fn fn, void *user, size_t *n_failed, struct mc_err *err)
{
    struct ck_tables set;
    build_tables(&set, opt->cpu_flags);
    return ck_run_tables(&set, opt, fn, user, n_failed, err);
}
