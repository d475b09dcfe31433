/* engine.h - the one door to the model: engine = the loaded weights, session = one timeline of tokens. Speaks ids, never text.
 *
 *   engine_open -> session_create -> session_append / session_logits / sampler_pick ... -> session_destroy -> engine_close
 *
 * Threads: an engine serves one call at a time (its worker team walks one forward pass); sessions of one engine are used by one
 * thread at a time. Nothing here prints or exits. Same logits, to the bit, for every thread count, batch size, split of the
 * prompt, rewind and snapshot. */
#ifndef RUNTIME_ENGINE_ENGINE_H
#define RUNTIME_ENGINE_ENGINE_H

#include "kernels/kernels.h"
#include "platform/base/err.h"
#include "runtime/model/shape.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct session;
struct session_snapshot;
struct gguf;
struct stream_fault;

enum engine_arith { ENGINE_FAST, ENGINE_EXACT /* decoded float weights, float activations, f32 cache */ };

/* Told how far a long piece of work is; returning false stops it at the next such place with MC_ECANCELLED. */
typedef bool (*engine_progress_fn)(void *user, uint64_t done, uint64_t total);

struct session_options {
    uint32_t n_ctx;   /* tokens the session can hold; 1 .. context_length */
    uint32_t n_batch; /* prompt tokens per chunk; 0 = 2048. Never changes a result */
    enum kern_kv kv;  /* cache format; ENGINE_EXACT always uses f32 */
};

struct engine_options {
    const char *model_path;
    unsigned n_threads; /* 0: one per physical core that this process may use */
    const char *pin;    /* "auto", "off" or a list of CPU numbers "0,2,4"; NULL = auto */
    const char *isa;    /* "auto", "scalar", "avx2", "avx512"; NULL = auto */
    const char *io;     /* how weights come into memory: "auto", "uring", "pread", or "mmap": only what is packed gets memory of
                           its own, the rest stays mapped from the file. NULL = auto */
    enum engine_arith arith;
    const char *layout;    /* "auto": matrices are packed (16 rows interleaved, in large pages) where that decodes faster and as
                              far as memory allows; "file": never; "packed": all of them, or MC_ENOMEM. NULL = auto. The results
                              are the same bits */
    const char *hugepages; /* "auto", "off", "thp", "2m", "1g" (os_hugepages of platform/os.h): pages of the weights that are
                              kept in own memory. A choice that cannot be kept is an error, except auto. NULL = auto */
    const char *numa; /* "auto", "local", "interleave", "mirror": engine/nodes.h; one that the machine or its memory cannot keep
                         becomes another, with a warning. NULL = auto */
    unsigned assumed_nodes; /* 0 but in tests: as if the machine had so many memory nodes */
    bool touch_first;       /* make all memory of the weights present before they are read, so that both can be timed apart */
    /* The up matrices of routed or shared experts stay in the file's layout (unless `layout` is "packed"): rows that the
     * settings leave out can be skipped only there. */
    bool keep_up_exps, keep_up_shexp;
    /* Ceiling for all that the process holds: weights, large pages, a session like `session`, and the file cache it causes.
     * Routed experts that do not fit are read from the file while the model runs. 0: what the machine or its control group has,
     * and the file cache does not count. */
    uint64_t memory_bytes;
    bool expert_cache_given;
    uint64_t expert_cache_bytes; /* if given: the routed experts get so much of it; less than all of them take is streaming */
    bool keep_use; /* streamed experts: begin with those that earlier runs used most, and keep the uses of this one, in a file
                      of the cache folder */
    const struct session_options *session; /* weights leave room for one like this; n_ctx 0: 8192 tokens. NULL: for none */
    const struct stream_fault *disk_fault; /* NULL but in tests: io/stream/stream.h, for streamed experts */
    engine_progress_fn progress;           /* of reading weights, in bytes of the file; or NULL */
    void *progress_user;
};

struct engine_facts {
    const char *isa; /* kernel set in use */
    unsigned n_threads;
    bool pinned;
    uint64_t file_bytes; /* all parts */
    uint64_t tensor_bytes;
    /* Weight bytes that one decoded token reads, as the file stores them (routed experts: the used ones). */
    uint64_t token_bytes_layers, token_bytes_head;
    uint64_t packed_bytes;      /* memory of the packed matrices */
    uint64_t packed_file_bytes; /* what the same matrices take in the file */
    /* What the weights' own memory is made of. */
    uint64_t pages_1g_bytes, pages_2m_bytes, pages_thp_bytes, pages_normal_bytes;
    uint64_t mapped_bytes; /* of the matrices that stay mapped from the file */
    uint64_t read_bytes;   /* of the file, read into that memory */
    double touch_s;        /* of load_s: making that memory present; 0 unless touch_first, for then it is part of reading */
    double read_s;         /* of load_s: reading and packing */
    const char *io;        /* what --io auto became */
    bool io_direct;        /* past the file cache, */
    bool io_from_cache;    /* except for what the cache held */
    const char *numa;      /* what --numa auto became */
    double load_s;
    bool streams;                /* the routed experts are read while the model runs, */
    uint64_t expert_cache_bytes; /* into memory of this size, */
    uint64_t expert_all_bytes;   /* of which all of them would need this (0: they cannot be streamed) */
    double expert_disk_gb_s;     /* of a short probe; 0: not measured */
};

/* Errors: MC_EIO, MC_EFORMAT, MC_EUNSUPPORTED naming key or tensor, MC_ENOMEM, MC_EARG for a bad option,
 * MC_ECANCELLED. */
MC_MUST_CHECK enum mc_code engine_open(const struct engine_options *opt, struct engine **out, struct mc_err *err);
void engine_close(struct engine *e); /* sessions must be gone */

const struct model_shape *engine_shape(const struct engine *e);
const struct gguf *engine_gguf(const struct engine *e); /* for the tokenizer; borrowed */
void engine_facts_get(const struct engine *e, struct engine_facts *out);
/* The team's CPUs also measure things (memory bandwidth): fn runs on every worker. */
struct workers;
struct workers *engine_workers(struct engine *e);

/* The settings that may change while the engine runs; lossless at first. Any thread may use the box. */
struct settings_box;
struct settings_box *engine_settings(struct engine *e);

/* What was computed, and what settings have left out, since the engine was opened. Any thread. */
struct engine_counts {
    uint64_t steps_decoded;                 /* tokens that session_decode ran */
    uint64_t experts_used, experts_dropped; /* routed experts of a token and layer */
    uint64_t rows_computed, rows_skipped;   /* rows of up projections: skipped means not used, whether or not they were read */
    uint64_t bytes_saved;                   /* weights that single tokens did not read because of it */
    uint64_t tokens_appended;               /* tokens of prompts that were run */
    uint64_t append_ns, decode_ns;          /* time of both */
};
void engine_counts_get(const struct engine *e, struct engine_counts *out);
/* Bytes of up that the settings `rows_exps` and `rows_shexp` can save of a token, in the layout in force. */
uint64_t engine_rows_saving(const struct engine *e, uint32_t rows_exps, uint32_t rows_shexp);

/* What streaming has done since the engine was opened, as of the last chunk; all 0 where it does not stream. Any thread. */
struct engine_streaming {
    uint64_t hits, misses;             /* uses of an expert by a token or a chunk: it was in memory, or not */
    uint64_t bytes_read;               /* of the file */
    uint64_t busy_ns;                  /* while the disk was asked for something */
    uint64_t stall_ns;                 /* while computing waited for it */
    uint64_t guesses, guesses_used;    /* experts that were read because they were likely; those that were used then */
    uint64_t retries;                  /* reads that failed once */
    uint64_t foreseen, foreseen_right; /* experts of a next layer that were foreseen; those that it then chose */
};
void engine_streaming_get(const struct engine *e, struct engine_streaming *out);
/* Of one layer, 0 .. n_layer-1. Between calls of sessions only. */
void engine_streaming_layer(const struct engine *e, uint32_t layer, uint64_t *hits, uint64_t *misses);
/* What the disk gives in reads like those of experts, measured now with `bytes` of them; the cache is empty afterwards. GB/s;
 * 0 where nothing is streamed. */
MC_MUST_CHECK enum mc_code engine_streaming_measure(struct engine *e, uint64_t bytes, double *gb_s, struct mc_err *err);

/* ---- sessions ---- */

struct session_memory {
    uint64_t kv_bytes; /* raw window, compressed rows, half-filled blocks */
    uint64_t activation_bytes;
    uint64_t total_bytes;
};

/* What session_create will take, without taking it. Errors: MC_EARG naming the field. */
MC_MUST_CHECK enum mc_code session_memory_estimate(const struct engine *e, const struct session_options *opt,
                                                   struct session_memory *out, struct mc_err *err);
MC_MUST_CHECK enum mc_code session_create(struct engine *e, const struct session_options *opt, struct session **out,
                                          struct mc_err *err);
void session_destroy(struct session *s);

uint32_t session_position(const struct session *s); /* tokens held */
uint32_t session_capacity(const struct session *s); /* n_ctx */
const int32_t *session_tokens(const struct session *s);

/* Called after every chunk of a long append and, where it has several tokens, after every layer, in tokens (a part of a chunk
 * for its layers). When it stops the append the whole chunks stay; the one at hand does not count. */
void session_set_progress(struct session *s, engine_progress_fn fn, void *user);

/* Runs n >= 1 tokens behind the ones held and makes the logits of the last one. No allocation.
 * Errors: MC_EARG (an id outside the vocabulary: nothing is done), MC_EFULL (they do not fit: nothing is done), MC_EIO (the
 * model file was damaged while in use), MC_ECANCELLED. A NaN among the logits is MC_EFORMAT naming the position. */
MC_MUST_CHECK enum mc_code session_append(struct session *s, const int32_t *ids, size_t n, struct mc_err *err);

/* One token of an answer: as session_append, except that settings of scope "decode" act on it too. On the tokens of an append
 * they act only with scope "all": what is lossy there stays in the cache. So the phase is the caller's word, never the number
 * of tokens, and results do not depend on how a prompt is cut. */
MC_MUST_CHECK enum mc_code session_decode(struct session *s, int32_t id, struct mc_err *err);

/* The same as session_append; fn gets the logits of every appended position for which want[i] != 0 (want NULL: all), in order.
 */
typedef void (*session_logits_fn)(void *user, uint32_t position, const float *logits);
MC_MUST_CHECK enum mc_code session_append_all(struct session *s, const int32_t *ids, size_t n, const uint8_t *want,
                                              session_logits_fn fn, void *user, struct mc_err *err);

/* Of the last appended token, vocabulary floats; NULL after create, rewind and restore. Valid until the next call on this
 * session. */
const float *session_logits(const struct session *s);

/* Tokens held in front of the first one that was computed with lossy settings. */
uint32_t session_lossless_prefix(const struct session *s);

/* Goes back to n tokens. Free when at most session_rewind_reach() tokens are dropped (or n = 0); farther back the tokens are
 * run again from the nearest state that is still held, as tokens of a prompt. Exact in every case at lossless settings. n >
 * position is MC_EARG. */
MC_MUST_CHECK enum mc_code session_rewind(struct session *s, uint32_t n, struct mc_err *err);
uint32_t session_rewind_reach(const struct session *s);

/* Makes the session hold a common prefix of its tokens and ids (as long as possible, but at most n - 1 so that an append gives
 * logits); *n_kept tells how long. While the settings are lossless, tokens that were computed with lossy ones are not kept. */
MC_MUST_CHECK enum mc_code session_keep_prefix(struct session *s, const int32_t *ids, size_t n, uint32_t *n_kept,
                                               struct mc_err *err);

/* A copy of the whole state in memory, and back. A snapshot fits any session of the same engine with the same cache
 * format and n_ctx (MC_EARG otherwise); n_batch may differ. */
MC_MUST_CHECK enum mc_code session_snapshot_take(const struct session *s, struct session_snapshot **out, struct mc_err *err);
MC_MUST_CHECK enum mc_code session_snapshot_restore(struct session *s, const struct session_snapshot *snap, struct mc_err *err);
void session_snapshot_destroy(struct session_snapshot *snap);
uint64_t session_snapshot_bytes(const struct session_snapshot *snap);

/* From now on every append writes into a trace (emptied here), which belongs to the session: runtime/model/trace.h. Costs some
 * clock readings for each operator. */
struct trace;
MC_MUST_CHECK enum mc_code session_trace(struct session *s, const struct trace **out, struct mc_err *err);

/* Cache bytes that decoding one token at `position` reads (bench). */
uint64_t session_token_kv_bytes(const struct session *s, uint32_t position);

#endif
