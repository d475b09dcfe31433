/* checkkern.h - every kernel of the dispatch table against its scalar twin: equal bytes, and how fast.
 *
 * Tables are built for growing sets of CPU flags. A kernel is checked where its pointer is new; the scalar table is the
 * reference. Inputs end at an inaccessible page, outputs stand between canaries, sizes cover each tail and the real shapes,
 * patterns cover zeros, extremes, denormals, a spike and random numbers from a seed that is part of every complaint. An
 * over-read or an instruction this CPU lacks ends the process: that is the finding. Serves the unit test and `modchip bench
 * kernels`. */
#ifndef KERNELS_CHECK_CHECKKERN_H
#define KERNELS_CHECK_CHECKKERN_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check_options {
    const char *only;   /* kernels whose name contains this text; NULL: all */
    const char *isa;    /* rows of this instruction set only, by its name in struct check_row; NULL: all */
    uint32_t cpu_flags; /* what may be used (kern_cpu_flags()) */
    uint64_t seed;
    bool bench;               /* measure too; then the scalar kernels have rows as well */
    bool loose;               /* inputs end 64 bytes before the fence: for emulators that read what a mask hides (QEMU 7) */
    unsigned bench_ms;        /* spent on each number; 0: 20 */
    bool (*stop)(void *user); /* asked before each kernel, true ends the run with MC_ECANCELLED; or NULL */
    void *stop_user;
};

/* Core clock of the calling thread's CPU, measured now by that chain. */
double checkkern_ghz(void);

/* One kernel at one instruction set. The numbers are 0 without bench. Clock: a chain of dependent integer operations of known
 * latency, timed just before, gives the cycles of a nanosecond. Each number is the best of many short runs on data that fits
 * L2. */
struct check_row {
    const char
        *kernel;     /* "matmul iq1_s", "packed iq1_s" (same product, pack.h), "pack iq1_s" (into that form), "rms_norm" ... */
    const char *isa; /* "scalar", "avx2", "avx2_vnni", "avx512" */
    bool ok;
    const char *detail;         /* "" or the first difference: case, element, both values, seed */
    double weights_per_cycle;   /* weights (other kernels: elements) of one column */
    double products_per_cycle8; /* matmul and packed with 8 columns: weights x columns; else 0 */
    double gb_s;                /* bytes of weights, for pack those of the file (other kernels: bytes read and written) */
    double speedup;             /* against the scalar twin, one column */
};

/* Strings of the row live until the callback returns. */
typedef void (*check_row_fn)(void *user, const struct check_row *row);

/* Rows come in order of kernel, then instruction set; *n_failed counts those with ok == false.
 * Errors: MC_ENOMEM, MC_ECANCELLED. Threads: any, but measure alone. */
MC_MUST_CHECK enum mc_code check_run(const struct check_options *opt, check_row_fn fn, void *user, size_t *n_failed,
                                     struct mc_err *err);

#endif
