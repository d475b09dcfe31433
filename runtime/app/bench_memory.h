/* bench_memory.h - the two figures that the engine's speed is compared with: how fast its worker threads can read memory, and
 * how fast the model file comes in. */
#ifndef RUNTIME_APP_BENCH_MEMORY_H
#define RUNTIME_APP_BENCH_MEMORY_H

#include "platform/base/err.h"

#include <stdint.h>

struct gguf;
struct workers;
struct memory_reader;

/* A few hundred megabytes on large pages, written once by the workers that will read them. */
MC_MUST_CHECK enum mc_code memory_reader_create(struct workers *team, struct memory_reader **out, struct mc_err *err);
void memory_reader_destroy(struct memory_reader *r);
/* Gigabytes a second of all workers together: the best pass of a tenth of a second, so that a pass which the system interrupted
 * does not count as slow memory. */
double memory_reader_measure(struct memory_reader *r);
uint64_t memory_reader_bytes(const struct memory_reader *r); /* what it holds; 0 of NULL */

/* Maps every part of the model and reads one byte of each page with all workers: afterwards the file is in memory, as far as it
 * fits. *seconds is what that took. */
MC_MUST_CHECK enum mc_code bench_read_model(const struct gguf *g, struct workers *team, double *seconds, struct mc_err *err);

#endif
