/* stream.h - a few reads of files in flight at a time: a queue of the kernel, or one waiting thread a read.
 *
 * A read has a slot number of the caller's choice; several slots are read at the same time and taken back in any order. Short
 * reads and interruptions are continued here; what comes back is whole or an error.
 *
 * For one thread at a time, which may be woken by others while it waits. */
#ifndef IO_STREAM_STREAM_H
#define IO_STREAM_STREAM_H

#include "platform/os.h"

enum stream_way { STREAM_RING, STREAM_THREADS };

enum { STREAM_SLOTS_MAX = 64 };

struct stream_read {
    struct os_source *source;
    uint64_t off;
    void *dst;   /* a direct source wants off, dst and size to be multiples of OS_READ_ALIGN */
    size_t size; /* < 2 GiB */
    size_t need; /* bytes that must come, <= size; the file may end behind them */
};

/* A faulty disk for tests: gets every result before it is looked at, and returns what is to be believed. */
struct stream_fault {
    int64_t (*result)(void *user, uint64_t off, int64_t result);
    void *user;
};

struct stream;

/* Errors: MC_EARG (slots not 1..64), MC_ENOMEM, MC_EUNSUPPORTED (no ring, saying why), MC_EIO (no threads).
 * fault: NULL, or borrowed as long as the stream lives. Threads belong to the whole CPU set of the caller. */
MC_MUST_CHECK enum mc_code stream_create(enum stream_way way, unsigned slots, const struct stream_fault *fault,
                                         struct stream **out, struct mc_err *err);
/* Waits until nothing is in flight. */
void stream_destroy(struct stream *s);

/* Starts a read; the slot must be free, r is copied, the memory must stay. Errors: MC_EUNSUPPORTED, MC_EBUSY (of the ring);
 * the slot is free again then. */
MC_MUST_CHECK enum mc_code stream_start(struct stream *s, unsigned slot, const struct stream_read *r, struct mc_err *err);
/* Waits for the read of this slot, which is free afterwards. Errors: MC_EIO naming file and place. */
MC_MUST_CHECK enum mc_code stream_finish(struct stream *s, unsigned slot, struct mc_err *err);

/* Reads one block of OS_READ_ALIGN bytes into `block`: a ring that can be made may still refuse to read. Nothing in flight. */
MC_MUST_CHECK enum mc_code stream_prove(struct stream *s, struct os_source *source, void *block, struct mc_err *err);
/* Waits for any read: *slot is its number, which is free afterwards, and the result is that read's, as of stream_finish. After
 * stream_wake *slot is STREAM_NONE with MC_OK; with an error it means that the queue itself is broken. */
enum { STREAM_NONE = STREAM_SLOTS_MAX };
MC_MUST_CHECK enum mc_code stream_take(struct stream *s, unsigned *slot, struct mc_err *err);
/* Lets stream_take return. Threads: any. */
void stream_wake(struct stream *s);

#endif
