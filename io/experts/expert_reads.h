/* expert_reads.h - many reads of the model's files in flight, taken in by a thread of their own while everybody computes.
 *
 * One thread, the owner, starts reads and looks for landed ones; the reader thread continues short ones and notes what has
 * landed. A read that failed is tried once more. The way (io_uring or threads with positioned reads, past the file cache or
 * through it) is measured once when the object is opened. */
#ifndef IO_EXPERTS_EXPERT_READS_H
#define IO_EXPERTS_EXPERT_READS_H

#include "io/stream/stream.h"
#include "io/weights/weights.h"

struct expert_reads;

struct expert_reads_facts {
    enum weights_io io; /* WEIGHTS_URING or WEIGHTS_PREAD */
    bool direct;        /* past the file cache */
    double gb_s;        /* of the probe; 0: not measured, the files are small */
    char why[240];
};

struct expert_read {
    unsigned part;
    uint64_t off; /* in the part; this, size and dst are multiples of OS_READ_ALIGN */
    size_t size;
    size_t need; /* bytes that must come; the file may end behind them */
    uint8_t *dst;
    uint32_t tag; /* given back */
};

struct expert_landed {
    uint32_t tag;
    enum mc_code code; /* of the second attempt, if there was one */
};

/* probe_bytes at probe_dst are memory to try reads of block_bytes with. io: AUTO measures; URING and PREAD are kept or are an
 * error. fault: see stream_create. g and w must outlive the result. Errors: MC_EUNSUPPORTED (uring, saying why), MC_EIO,
 * MC_ENOMEM. */
MC_MUST_CHECK enum mc_code expert_reads_open(const struct gguf *g, const struct weights *w, enum weights_io io,
                                             uint8_t *probe_dst, size_t probe_bytes, size_t block_bytes,
                                             const struct stream_fault *fault, struct expert_reads **out, struct mc_err *err);
void expert_reads_close(struct expert_reads *r); /* waits for what is in flight */
void expert_reads_facts_get(const struct expert_reads *r, struct expert_reads_facts *out);

/* All of these by the owner. */
unsigned expert_reads_free(const struct expert_reads *r);      /* so many more may be started */
unsigned expert_reads_in_flight(const struct expert_reads *r); /* of which the landing was not seen yet */
MC_MUST_CHECK enum mc_code expert_reads_start(struct expert_reads *r, const struct expert_read *x, struct mc_err *err);
/* The next landed read, false if there is none now. *err is filled when landed->code is set. */
bool expert_reads_landed(struct expert_reads *r, struct expert_landed *landed, struct mc_err *err);
/* Sleeps until there is one (or returns at once; with nothing in flight always). */
void expert_reads_wait(struct expert_reads *r);

struct expert_reads_counts {
    uint64_t bytes;   /* landed */
    uint64_t busy_ns; /* while at least one was in flight */
    uint64_t retries;
};
void expert_reads_counts_get(const struct expert_reads *r, struct expert_reads_counts *out);

/* GB/s of such blocks at places spread over the largest part, with nothing done to them; nothing may be in flight. */
MC_MUST_CHECK enum mc_code expert_reads_measure(struct expert_reads *r, uint8_t *dst, size_t dst_bytes, size_t block_bytes,
                                                uint64_t bytes, double *gb_s, struct mc_err *err);

#endif
