/* answer_stream.h - generated ids (or text) in; reasoning, content and tool calls out, as soon as they are safe to show.
 *
 *   id -> bytes -> utf8_stream -> | R reasoning | H undecided block | C content | T block of calls | -> events
 *                                                                     stop_match
 * The joined events do not depend on how the input is cut. Held back is only what may still become part of a marker.
 * Given ids, the markers <think>, </think> and DSML count only when they are those tokens; given text, their spelling counts.
 * Nothing is printed for control tokens. Without declared tools, DSML markup is plain content. */
#ifndef RUNTIME_TEXT_ANSWER_STREAM_H
#define RUNTIME_TEXT_ANSWER_STREAM_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

struct answer_stream;
struct tokenizer;
struct tool_set;

/* Every function may be NULL. Spans are whole code points of valid UTF-8 and live only during the call.
 * call_begin .. call_arguments* .. call_end come in this order for one call after the other; idx counts the calls begun, from
 * 0. The joined arguments of a complete call are a JSON object. One that ends with complete = false was cut or malformed and
 * must not be run; its text may follow as content. */
struct answer_events {
    void *user;
    void (*reasoning)(void *user, struct mc_span text);
    void (*content)(void *user, struct mc_span text);
    void (*call_begin)(void *user, size_t idx, struct mc_span name);
    void (*call_arguments)(void *user, size_t idx, struct mc_span piece);
    void (*call_end)(void *user, size_t idx, bool complete);
};

struct answer_options {
    bool in_reasoning;            /* chat_prompt.in_reasoning */
    const struct tool_set *tools; /* NULL: none declared; borrowed */
    const struct mc_span *stops;  /* stop strings, looked for in content only; copied */
    size_t n_stops;
};

/* Why generation ended, and why the answer did. */
enum answer_finish { ANSWER_STOP, ANSWER_LENGTH, ANSWER_TOOL_CALLS };

#define ANSWER_STOPS_MAX      16
#define ANSWER_STOP_BYTES_MAX 256

/* t may be NULL when only text is fed; borrowed. Errors: MC_EARG (too many, too long or empty stop strings), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code answer_stream_create(const struct tokenizer *t, const struct answer_options *options,
                                                const struct answer_events *events, struct answer_stream **out,
                                                struct mc_err *err);
void answer_stream_destroy(struct answer_stream *a);

/* Take in one id, or any bytes. Errors: MC_ENOMEM (the stream is then done). */
MC_MUST_CHECK enum mc_code answer_stream_feed_id(struct answer_stream *a, int32_t id, struct mc_err *err);
MC_MUST_CHECK enum mc_code answer_stream_feed_text(struct answer_stream *a, struct mc_span text, struct mc_err *err);
/* Nothing that comes can matter any more (stop string seen, block of calls closed): generation may end with ANSWER_STOP. */
bool answer_stream_is_done(const struct answer_stream *a);
bool answer_stream_in_reasoning(const struct answer_stream *a);
/* The matched stop string after it was seen, else an empty span. */
struct mc_span answer_stream_stop(const struct answer_stream *a);
/* End of generation, once: sends what is held. `why` is ANSWER_STOP or ANSWER_LENGTH. */
MC_MUST_CHECK enum mc_code answer_stream_finish(struct answer_stream *a, enum answer_finish why, enum answer_finish *out,
                                                struct mc_err *err);

#endif
