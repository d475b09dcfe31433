/* layout_choice.c - see layout_choice.h */
#include "runtime/engine/layout_choice.h"

#include "kernels/pack.h"
#include "platform/os.h"
#include "topology/workers.h"

enum {
    SAMPLE_BYTES = 64 << 20,    /* beyond the caches: so much at least, four times the L3 where it says its size, */
    SAMPLE_BYTES_MAX = 1 << 30, /* and no more than this */
    SAMPLE_BYTES_MIN = 16 << 20,
    CALL_GROUPS = 16, /* groups of 16 rows at a time */
    RUNS = 8,
};

struct sample {
    const struct kern_table *kern;
    const struct matrix *m;
    uint8_t *packed, *x;
    size_t group_bytes;
    uint32_t groups;
    bool use_packed;
};

static void share_of(const struct sample *s, const struct worker *w, uint32_t *g0, uint32_t *g1)
{
    const uint32_t calls = s->groups / CALL_GROUPS;
    *g0 = calls * w->id / w->count * CALL_GROUPS;
    *g1 = calls * (w->id + 1) / w->count * CALL_GROUPS;
}

static void pack_share(void *arg, struct worker *w)
{
    const struct sample *s = arg;
    const size_t file_bytes = KERN_PACK_ROWS * s->m->row_bytes;
    uint32_t g0, g1;
    share_of(s, w, &g0, &g1);
    for (uint32_t g = g0; g < g1; g++)
        s->kern->pack[s->m->type](s->packed + g * s->group_bytes, s->m->data + g * file_bytes, s->m->row_bytes, s->m->k);
}

static void multiply_share(void *arg, struct worker *w)
{
    const struct sample *s = arg;
    const struct matrix *m = s->m;
    const size_t rows = CALL_GROUPS * KERN_PACK_ROWS;
    float y[CALL_GROUPS * KERN_PACK_ROWS], *const out[1] = {y};
    const void *const x[1] = {s->x};
    uint32_t g0, g1;
    share_of(s, w, &g0, &g1);
    for (uint32_t g = g0; g < g1; g += CALL_GROUPS)
        if (s->use_packed)
            s->kern->packed[m->type](out, s->packed + g * s->group_bytes, x, m->k, rows, 1);
        else
            s->kern->matmul[m->type](out, m->data + (size_t)g * KERN_PACK_ROWS * m->row_bytes, m->row_bytes, x, m->k, rows, 1);
}

static uint64_t time_of(struct workers *team, bool use_packed, struct sample *s)
{
    s->use_packed = use_packed;
    const uint64_t start = os_clock_ns();
    workers_run(team, multiply_share, s);
    return os_clock_ns() - start + 1;
}

/* Every L3 cache serves a part of the sample, so all of the machine's count. */
static uint64_t sample_bytes_of(uint64_t l3_bytes)
{
    const uint64_t bytes = l3_bytes > SAMPLE_BYTES_MAX / 4 ? SAMPLE_BYTES_MAX : 4 * l3_bytes;
    return bytes > SAMPLE_BYTES ? bytes : SAMPLE_BYTES;
}

struct layout_speed layout_measure(const struct kern_table *kern, struct workers *team, const struct matrix *m)
{
    const uint64_t wanted = sample_bytes_of(workers_l3_bytes(team)),
                   bytes = matrix_bytes(m) < wanted ? matrix_bytes(m) : wanted;
    const enum quant_act act = quant_info(m->type)->act;
    struct sample s = {.kern = kern, .m = m, .group_bytes = kern_pack_group_bytes(m->type, m->k)};
    struct layout_speed out = {0, 0};
    s.groups = (uint32_t)(bytes / m->row_bytes / KERN_PACK_ROWS / CALL_GROUPS * CALL_GROUPS);
    if (bytes < SAMPLE_BYTES_MIN) return out;
    const size_t packed_bytes = s.groups * s.group_bytes, row_bytes = mc_round_up(kern_act_row_bytes(act, m->k) + 64, 64);
    void *memory = NULL;
    if (os_mem_alloc(packed_bytes + row_bytes + m->k * sizeof(float), OS_MEM_HUGE, "layout sample", &memory, NULL)) return out;
    s.packed = memory;
    s.x = s.packed + packed_bytes;
    float *values = (float *)(void *)(s.x + row_bytes);
    for (uint32_t i = 0; i < m->k; i++) values[i] = (float)((int)(i % 61) - 30);
    kern->quantize[act](s.x, values, m->k, 0, m->k);
    workers_run(team, pack_share, &s);
    /* In turn, so that a slow moment of the machine meets both; the best run of each. */
    uint64_t packed_ns = UINT64_MAX, file_ns = UINT64_MAX;
    for (int i = 0; i < RUNS; i++) {
        const uint64_t p = time_of(team, true, &s), f = time_of(team, false, &s);
        if (p < packed_ns) packed_ns = p;
        if (f < file_ns) file_ns = f;
    }
    const double sample_bytes = (double)s.groups * KERN_PACK_ROWS * (double)m->row_bytes;
    out.packed = sample_bytes / (double)packed_ns;
    out.file = sample_bytes / (double)file_ns;
    os_mem_free(memory, packed_bytes + row_bytes + m->k * sizeof(float));
    return out;
}
