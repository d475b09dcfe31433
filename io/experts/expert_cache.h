/* expert_cache.h - which routed experts are in memory, which are on their way, which have to go.
 *
 * An expert is three slices of a file (gate, up, down), each contiguous; it is read into one slot of memory in the file's own
 * layout. Layers whose experts have the same size share slots. Who needs an expert borrows it: an expert that is borrowed or
 * on its way is never evicted. Else the one of least worth (expert_rank.h) goes first.
 *
 * Threads: one at a time, the owner (a worker of the team between two barriers, or whoever holds the engine); the disk has a
 * thread of its own behind expert_reads.h. Nothing here changes a result: bytes are those of the file or an error. */
#ifndef IO_EXPERTS_EXPERT_CACHE_H
#define IO_EXPERTS_EXPERT_CACHE_H

#include "io/experts/expert_reads.h"

enum { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_PIECES };
enum { EXPERT_HALF_LIFE = 512 /* tokens: expert_rank.h */ };

struct expert_layer {
    size_t tensor_idx[EXPERT_PIECES]; /* stacked: n_expert slices of bytes[] each */
    size_t bytes[EXPERT_PIECES];
};

struct expert_cache_options {
    const struct expert_layer *layers; /* [n_layers], copied */
    unsigned n_layers, n_expert;
    unsigned n_used;    /* experts that one token uses in a layer */
    uint64_t bytes;     /* of all slots */
    enum weights_io io; /* AUTO, URING, PREAD */
    enum os_hugepages huge;
    const struct stream_fault *fault; /* NULL but in tests */
};

struct expert_cache;

/* Bytes that the slots must have at least, and those that hold every expert. */
void expert_cache_sizes(const struct expert_cache_options *opt, uint64_t *least, uint64_t *all);

/* Makes the slots (they come at touch: expert_cache_region) but reads nothing. Errors: MC_ENOMEM (also: opt->bytes below the
 * least, naming it), MC_EUNSUPPORTED. */
struct os_region;
MC_MUST_CHECK enum mc_code expert_cache_create(const struct gguf *g, const struct expert_cache_options *opt,
                                               struct expert_cache **out, struct mc_err *err);
/* All slots as one region; the caller touches it, with as many threads as it likes, before expert_cache_start. */
struct os_region *expert_cache_region(struct expert_cache *c);
/* Finds the best way of reading. Errors: those of expert_reads_open. */
MC_MUST_CHECK enum mc_code expert_cache_start(struct expert_cache *c, const struct weights *w, struct mc_err *err);
void expert_cache_destroy(struct expert_cache *c); /* waits for the disk */

enum expert_state {
    EXPERT_READY,   /* borrowed, all bytes are there */
    EXPERT_COMING,  /* borrowed, on its way; expert_look tells when */
    EXPERT_NO_ROOM, /* not borrowed: give some back, or wait */
    EXPERT_FAILED   /* not borrowed (any more): it could not be read, see expert_cache_error */
};

/* Borrows an expert for its use by the tokens at hand; `weight` is what that counts in its worth, in tokens. An expert may be
 * borrowed once at a time. */
enum expert_state expert_borrow(struct expert_cache *c, unsigned layer, uint32_t expert, double weight);
/* How a borrowed expert that was COMING is doing now: READY, COMING or FAILED. */
enum expert_state expert_look(struct expert_cache *c, unsigned layer, uint32_t expert);
/* A piece of a borrowed expert that is READY; WEIGHTS_OVERREAD_BYTES behind it can be read, too. */
const uint8_t *expert_piece(const struct expert_cache *c, unsigned layer, uint32_t expert, unsigned piece);
void expert_return(struct expert_cache *c, unsigned layer, uint32_t expert);
/* Sleeps until some read has landed; the time counts as stalled. With no read in flight it returns at once. */
void expert_wait(struct expert_cache *c);
/* The first failure since it was last asked for; MC_OK if there was none. */
MC_MUST_CHECK enum mc_code expert_cache_error(struct expert_cache *c, struct mc_err *err);

/* An expert that will be used for sure (`certain`): read now, and kept for it, as long as slots are left for others. Or one
 * that may be used: read if the disk has nothing else to do, and nothing is thrown out for it that is worth more than one use
 * now. Does nothing where no read or no slot is free. */
void expert_wish(struct expert_cache *c, unsigned layer, uint32_t expert, bool certain);
/* What certain wishes have kept and nobody has borrowed is an expert like others from now on. */
void expert_forget_wishes(struct expert_cache *c);
/* True while enough of the uncertain wishes are used to pay for those that are not; else false for a while. */
bool expert_guesses_pay(struct expert_cache *c);

/* Uses of earlier runs (expert_use.h; [n_layers * n_expert], in tokens): worths to begin with. The most used ones are pinned,
 * at most a quarter of the slots. Before anything is borrowed. */
void expert_cache_remember(struct expert_cache *c, const float *use);
/* The same of now, to be kept. */
void expert_cache_uses(const struct expert_cache *c, float *use);
/* Fills free slots with the experts of most worth, and waits for them; go_on (or NULL) is asked now and then and may stop it.
 * Errors: MC_ECANCELLED. An expert that cannot be read is left out. */
MC_MUST_CHECK enum mc_code expert_cache_warm(struct expert_cache *c, bool (*go_on)(void *user, uint64_t done, uint64_t total),
                                             void *user, struct mc_err *err);

/* Somebody foresaw n experts of a layer, and so many were right, whether or not anything had to be read for them: for the
 * figures alone. */
void expert_foreseen(struct expert_cache *c, uint64_t n, uint64_t right);
/* n more tokens have passed. */
void expert_cache_pass(struct expert_cache *c, double tokens);

/* fn is told of every demand, for recordings. NULL: nobody. */
void expert_cache_tell(struct expert_cache *c, void (*fn)(void *user, unsigned layer, uint32_t expert), void *user);

struct expert_cache_facts {
    struct expert_reads_facts reads;
    uint64_t slots_bytes, n_slots, n_experts, n_pinned;
};
void expert_cache_facts_get(const struct expert_cache *c, struct expert_cache_facts *out);

struct expert_counts {
    uint64_t hits, misses;             /* demands: in memory; not (or not yet, when a wish had begun it) */
    uint64_t bytes_read, busy_ns;      /* of the disk; busy: while at least one read was in flight */
    uint64_t stall_ns;                 /* of expert_wait */
    uint64_t guesses, guesses_used;    /* uncertain wishes that were read; and then demanded before they were evicted */
    uint64_t retries;                  /* reads that failed once */
    uint64_t foreseen, foreseen_right; /* of expert_foreseen */
};
void expert_cache_counts_get(const struct expert_cache *c, struct expert_counts *out);
/* Of one layer: hits and misses. */
void expert_cache_layer_counts(const struct expert_cache *c, unsigned layer, uint64_t *hits, uint64_t *misses);

/* Raw GB/s of the disk in blocks of the average slice, with up to `bytes` read into the slots of experts that are not there:
 * call it while the cache is empty, or all that is in it is forgotten. */
MC_MUST_CHECK enum mc_code expert_cache_measure(struct expert_cache *c, uint64_t bytes, double *gb_s, struct mc_err *err);

#endif
