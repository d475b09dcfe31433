/* nodes.c - see nodes.h */
#include "runtime/engine/nodes.h"

#include "kernels/pack.h"
#include "platform/os.h"
#include "runtime/model/product.h"
#include "topology/workers.h"

#include <stdio.h>
#include <stdlib.h>

const char *nodes_mode_name(enum nodes_mode mode)
{
    static const char *const names[NODES_MODES] = {"auto", "local", "interleave", "mirror"};
    return (unsigned)mode < NODES_MODES ? names[mode] : "unknown";
}

/* Run by every worker. */
static void ask(void *arg, struct worker *w)
{
    unsigned *const node = arg;
    node[w->id] = os_numa_node_here();
}

/* Fills n, os_node and first_worker from each worker's node; false when workers are not numbered by node, or on too many. */
static bool group_workers(struct nodes *out, const unsigned *node, unsigned workers)
{
    out->n = 0;
    for (unsigned i = 0; i < workers; i++) {
        if (out->n && out->os_node[out->n - 1] == node[i]) continue;
        for (unsigned k = 0; k < out->n; k++)
            if (out->os_node[k] == node[i]) return false;
        if (out->n == MATRIX_NODES_MAX || node[i] == OS_CPU_NONE) return false;
        out->os_node[out->n] = node[i];
        out->first_worker[out->n++] = i;
    }
    out->first_worker[out->n] = workers;
    return true;
}

static void choose(struct nodes *out, bool grouped, bool pinned, enum nodes_mode wish, unsigned n_memory)
{
    const char *const wanted = nodes_mode_name(wish);
    out->mode = wish == NODES_AUTO ? NODES_LOCAL : wish;
    if (n_memory == 1) {
        out->n = 1;
        out->one = true;
        snprintf(out->why, sizeof out->why, "the machine has one memory node, so there is nothing to place");
    } else if (wish == NODES_INTERLEAVE) {
        snprintf(out->why, sizeof out->why, "pages come from the %u memory nodes in turn", n_memory);
    } else if (!pinned || !grouped) {
        out->mode = NODES_INTERLEAVE;
        snprintf(out->why, sizeof out->why, "%s needs workers that stay on their node and are numbered by it: interleave",
                 wanted);
    } else if (out->n == 1) {
        out->one = true;
        snprintf(out->why, sizeof out->why, "all workers are on node %u of %u, and so is the memory", out->os_node[0],
                 n_memory);
    } else if (wish == NODES_MIRROR) {
        snprintf(out->why, sizeof out->why, "each of %u nodes keeps all packed weights", out->n);
    } else {
        snprintf(out->why, sizeof out->why, "each of %u nodes keeps the packed rows of its workers", out->n);
    }
    if (out->mode == NODES_INTERLEAVE) out->n = 1;
    out->interleave = !out->one;
}

void nodes_choose(struct workers *team, bool pinned, enum nodes_mode wish, unsigned assumed, struct nodes *out)
{
    const unsigned workers = workers_count(team);
    unsigned memory[64], node[PLACEMENT_MAX];
    memset(out, 0, sizeof *out);
    unsigned n_memory = os_numa_nodes(memory, ARRAY_LEN(memory));
    if (assumed) {
        n_memory = assumed;
        for (unsigned i = 0; i < workers; i++) node[i] = i * assumed / workers;
    } else {
        workers_run(team, ask, node);
    }
    const bool grouped = group_workers(out, node, workers);
    choose(out, grouped, pinned || assumed, wish, n_memory);
}

void nodes_without_mirror(struct nodes *n)
{
    n->mode = NODES_LOCAL;
    snprintf(n->why, sizeof n->why, "memory does not hold all packed weights %u times: local instead of mirror", n->n);
}

uint8_t *nodes_of_workers(const struct nodes *n, unsigned workers)
{
    uint8_t *const node = n->n > 1 ? calloc(workers, 1) : NULL;
    for (unsigned k = 0; k < n->n && node; k++)
        for (unsigned i = n->first_worker[k]; i < n->first_worker[k + 1]; i++) node[i] = (uint8_t)k;
    return node;
}

void nodes_share(const struct nodes *n, uint32_t home_rows, unsigned workers, struct matrix_nodes *at)
{
    uint32_t r0 = 0, r1;
    at->n = n->n;
    at->mirror = n->mode == NODES_MIRROR;
    for (unsigned k = 0; k < n->n; k++) {
        product_home(home_rows, n->first_worker[k], workers, &r0, &r1);
        at->first[k] = r0 / KERN_PACK_ROWS;
    }
    at->first[n->n] = home_rows / KERN_PACK_ROWS;
}
