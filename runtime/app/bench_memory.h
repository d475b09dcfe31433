/* bench_memory.h - what the engine's speed is compared with: how fast its worker threads can read memory, and how fast the
 * model file comes in from the disk and through its mapping. */
#ifndef RUNTIME_APP_BENCH_MEMORY_H
#define RUNTIME_APP_BENCH_MEMORY_H

#include "platform/base/err.h"

#include <stdint.h>

struct gguf;
struct workers;
struct memory_reader;

/* An eighth of the memory that is free on large pages, from 16 to 512 MB, written once by the workers that will read it. *out
 * is NULL where 16 MB are too much, or this process may not have them: then there is nothing to measure, and that is no error.
 */
MC_MUST_CHECK enum mc_code memory_reader_create(struct workers *team, struct memory_reader **out, struct mc_err *err);
void memory_reader_destroy(struct memory_reader *r);
/* Gigabytes a second of all workers together: the best pass of a tenth of a second, so that a pass which the system interrupted
 * does not count as slow memory. */
double memory_reader_measure(struct memory_reader *r);       /* NaN of NULL */
uint64_t memory_reader_size(uint64_t available_bytes);       /* what it would hold; 0: none */
uint64_t memory_reader_bytes(const struct memory_reader *r); /* what it holds; 0 of NULL */
/* "", or what to say of the figure because the caches of an ordinary machine hold as much as was read. */
const char *memory_reader_caveat(const struct memory_reader *r);

/* Maps every part of the model and reads one byte of each page with all workers: afterwards the file is in memory, as far as it
 * fits. *seconds is what that took. */
MC_MUST_CHECK enum mc_code bench_read_model(const struct gguf *g, struct workers *team, double *seconds, struct mc_err *err);

/* GB/s of the disk under the largest part of the model of -m: blocks of 4 MiB spread over it, at most 1 GiB, several in flight,
 * past the file cache by io_uring or threads; nothing is done with them. NaN where the file is smaller than a block. */
struct app_options;
MC_MUST_CHECK enum mc_code bench_disk(const struct app_options *o, double *gb_s, struct mc_err *err);

#endif
