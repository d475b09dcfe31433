/* intake.h - the bytes of tensors on their way from the files into memory of our own.
 *
 * Every worker has a lane: a few reads in flight, each in a slot. The way they go is chosen once when the intake is opened: out
 * of the mapping, by io_uring or by threads with positioned reads, past the system's file cache where it allows that, so that
 * no second copy stays there. */
#ifndef IO_WEIGHTS_INTAKE_H
#define IO_WEIGHTS_INTAKE_H

#include "io/stream/stream.h"
#include "io/weights/weights.h"

struct intake;

struct intake_options {
    enum weights_io io;
    unsigned lanes, slots;            /* slots of each lane */
    size_t block_bytes;               /* the largest range */
    const struct stream_fault *fault; /* NULL but in tests */
};

/* How it is done, and why: for the log and the report. */
struct intake_facts {
    enum weights_io io;           /* never AUTO */
    bool direct;                  /* past the file cache */
    bool from_cache;              /* except what the cache holds already */
    double cached_share;          /* of the files, before anything was read; 0 where unknown */
    double disk_gb_s, cache_gb_s; /* of the probe; 0: not measured */
    char why[240];
};

struct intake_range {
    size_t tensor_idx;
    uint64_t off; /* inside the tensor */
    size_t size;  /* <= block_bytes */
    /* NULL: memory of the lane. Else where the bytes go: at an address that equals the place in the file modulo OS_READ_ALIGN;
     * from the multiple of OS_READ_ALIGN before it to the one behind its end everything may be overwritten. */
    uint8_t *dst;
};

/* weights and its gguf must outlive the result. AUTO takes io_uring where it works, else threads; past the file cache where the
 * file system can do that, except for ranges that are in the cache, if a probe finds the cache faster. URING and PREAD
 * read everything past the cache. Errors: MC_EUNSUPPORTED (uring, saying why), MC_EIO, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code intake_open(const struct gguf *g, const struct weights *w, const struct intake_options *opt,
                                       struct intake **out, struct mc_err *err);
void intake_close(struct intake *in); /* waits for what is in flight */
void intake_facts_get(const struct intake *in, struct intake_facts *out);

/* Each lane by one thread at a time. start: the slot must be free. finish waits; *bytes (range.size of them, and
 * WEIGHTS_OVERREAD_BYTES readable behind) stay until the slot is started again. Errors: MC_EIO naming file and place. */
MC_MUST_CHECK enum mc_code intake_start(struct intake *in, unsigned lane, unsigned slot, const struct intake_range *r,
                                        struct mc_err *err);
MC_MUST_CHECK enum mc_code intake_finish(struct intake *in, unsigned lane, unsigned slot, const uint8_t **bytes,
                                         struct mc_err *err);

/* GB/s of reading up to `bytes` of the largest file on lane 0 in blocks of block_bytes spread over it, with nothing done to
 * them. Between uses of the slots. 0 for mmap and for files below a block. */
MC_MUST_CHECK enum mc_code intake_measure(struct intake *in, uint64_t bytes, double *gb_s, struct mc_err *err);

#endif
