/* layout_choice.h - is one token decoded faster from the packed form of a matrix than from the file's layout?
 *
 * Packed forms of the codebook formats take up to 55 % more bytes than the file (kernels/pack.h) and fewer instructions. Few
 * cores on fast memory want the one, many cores on two channels the other, so it is measured here, on the weights themselves.
 */
#ifndef RUNTIME_ENGINE_LAYOUT_CHOICE_H
#define RUNTIME_ENGINE_LAYOUT_CHOICE_H

#include "runtime/model/bind.h"

struct workers;

struct layout_speed {
    double packed, file; /* GB/s of weights as the file stores them, all workers together; 0: not measured */
};

/* A form that takes more memory than the file's must be about as fast for one token: prompts run up to twice as fast packed. */
static inline bool layout_pays(struct layout_speed s)
{
    return s.packed >= s.file * 0.9;
}

/* Multiplies some 64 MiB of m (four times the machine's L3 if that is more, at most 1 GiB) with one activation row in both
 * layouts, on the whole team; takes about a second. Matrices below 16 MiB and machines without the memory for it are not
 * measured. */
struct layout_speed layout_measure(const struct kern_table *kern, struct workers *team, const struct matrix *m);

#endif
