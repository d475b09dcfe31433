/* draw.h - the machine and the plan as a picture: boxes for packages, NUMA nodes, L3 groups and cores, the worker in each core.
 * Pure: two values in, text out. */
#ifndef TOPOLOGY_DRAW_H
#define TOPOLOGY_DRAW_H

#include "topology/placement.h"

enum draw_form { DRAW_TEXT /* ASCII */, DRAW_SVG };

/* *out is malloc'ed and the caller's, *size its length without the NUL behind its end. m must be indexed, p a plan for it.
 * Errors: MC_ENOMEM. */
MC_MUST_CHECK enum mc_code draw_picture(const struct machine *m, const struct placement *p, enum draw_form form, char **out,
                                        size_t *size, struct mc_err *err);

/* "8 MiB", "1.5 GiB", "0" for a size. */
void draw_size(char buf[24], uint64_t bytes);

#endif
