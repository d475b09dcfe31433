/* nodes.h - which memory node keeps what: a choice from the user's wish, the machine and where the workers are. */
#ifndef RUNTIME_ENGINE_NODES_H
#define RUNTIME_ENGINE_NODES_H

#include "platform/base/err.h"
#include "runtime/model/bind.h"

struct workers;

enum nodes_mode {
    NODES_AUTO,
    NODES_LOCAL,      /* packed rows on the node of the worker they are at home with; the rest in turn on all nodes */
    NODES_INTERLEAVE, /* pages of all nodes in turn */
    NODES_MIRROR,     /* packed rows on every node */
    NODES_MODES
};

const char *nodes_mode_name(enum nodes_mode mode);

struct nodes {
    enum nodes_mode mode; /* never AUTO */
    unsigned n;           /* nodes that keep a part or a copy of their own; 1: no difference is made */
    unsigned os_node[MATRIX_NODES_MAX];
    unsigned first_worker[MATRIX_NODES_MAX + 1]; /* of node k; workers are numbered by node */
    bool one;                                    /* there is one node, or all workers are on os_node[0] */
    bool interleave;                             /* what is on no node of its own comes from all nodes in turn */
    char why[160];
};

/* Asks the workers where they are. `assumed` > 0: as if there were so many nodes with the workers shared out among them
 * (tests). pinned: workers stay where they are. A wish that cannot be kept becomes another mode; `why` says so. */
void nodes_choose(struct workers *team, bool pinned, enum nodes_mode wish, unsigned assumed, struct nodes *out);

/* Local instead, because the memory does not hold a copy for each node. */
void nodes_without_mirror(struct nodes *n);

/* The node number (0..n-1) of each worker; to be freed. NULL when n is 1, or without memory (then node 0 serves all). */
uint8_t *nodes_of_workers(const struct nodes *n, unsigned workers);

/* Fills first[0..n] of `at`: groups of 16 rows of a stretch of `home_rows` rows by the node they are at home on. */
void nodes_share(const struct nodes *n, uint32_t home_rows, unsigned workers, struct matrix_nodes *at);

#endif
