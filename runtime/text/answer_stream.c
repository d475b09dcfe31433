/* answer_stream.c - see answer_stream.h
 *
 *   id / text -> utf8 -> fold -> pending: | given out | taken in, undecided |
 *
 *   R reasoning --</think>--> C content <--> R (while the content is white space)
 *   R --block--> H held: </think> proves it reasoning; at the end of generation a complete block of declared calls counts
 *   C --block--> T calls (tool_calls.h); an empty block leads back to C, a block that is none to X: text up to its end
 *   C --invoke without a block--> B held until </invoke>: a declared call, else text
 *
 * Every state decides by the bytes it sees and asks for more when they do not suffice, so cutting the input differently
 * cannot change what comes out. `lead` is content that is white space so far: a block that follows removes it. */
#include "runtime/text/answer_stream.h"

#include "runtime/text/markers.h"
#include "runtime/text/stop_match.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tool_calls.h"
#include "runtime/text/tool_set.h"
#include "runtime/text/utf8.h"
#include "runtime/text/utf8_stream.h"

#include <stdlib.h>

enum answer_state { IN_REASONING, IN_HELD_BLOCK, IN_CONTENT, IN_BARE_INVOKE, IN_CALLS, IN_PLAIN_BLOCK };

struct answer_stream {
    const struct tokenizer *t;
    const struct tool_set *tools;
    struct answer_events events;
    struct stop_match *stops;
    struct utf8_stream utf8;
    struct marker_fold fold;
    struct text_buf decoded, pending, lead, raw, shown, scratch; /* raw: of the block, while it has no complete call */
    size_t pos;                                                  /* in pending: what is before it is given out */
    size_t scanned;                                              /* held states: no marker begins before it, counted from pos */
    enum answer_state state;
    bool at_start, has_content, is_done, has_tools;
    size_t n_begun, n_complete; /* calls */
    struct call_parser calls;
};

static struct mc_span rest_of(const struct answer_stream *a)
{
    if (!a->pending.data) return text_span("", 0);
    return text_span(a->pending.data + a->pos, a->pending.size - a->pos);
}

/* ---- what goes out ---- */

static void show_reasoning(struct answer_stream *a, size_t size)
{
    const struct mc_span text = marker_unfold(text_span(rest_of(a).data, size), &a->scratch);
    if (text.size > 0 && a->events.reasoning) a->events.reasoning(a->events.user, text);
    a->pos += size;
}

static void send_shown(struct answer_stream *a)
{
    if (a->shown.size > 0 && a->events.content) a->events.content(a->events.user, text_buf_span(&a->shown));
    text_buf_clear(&a->shown);
}

static void show_text(struct answer_stream *a, struct mc_span folded)
{
    if (a->is_done) return;
    a->is_done = stop_match_feed(a->stops, marker_unfold(folded, &a->scratch), &a->shown);
    send_shown(a);
}

/* The next `size` bytes of pending are content. */
static void show_content(struct answer_stream *a, size_t size)
{
    show_text(a, text_buf_span(&a->lead));
    text_buf_clear(&a->lead);
    show_text(a, text_span(rest_of(a).data, size));
    a->pos += size;
    a->has_content = a->has_content || size > 0;
}

static void on_call_begin(void *user, struct mc_span name)
{
    struct answer_stream *const a = user;
    stop_match_flush(a->stops, &a->shown); /* a stop string does not reach over a call */
    send_shown(a);
    if (a->events.call_begin) a->events.call_begin(a->events.user, a->n_begun, name);
}

static void on_call_arguments(void *user, struct mc_span piece)
{
    struct answer_stream *const a = user;
    if (a->events.call_arguments) a->events.call_arguments(a->events.user, a->n_begun, piece);
}

static void on_call_end(void *user, bool complete)
{
    struct answer_stream *const a = user;
    if (a->events.call_end) a->events.call_end(a->events.user, a->n_begun, complete);
    a->n_begun++;
    if (complete) a->n_complete++;
}

/* ---- calls that are looked at before they are believed ---- */

struct trial {
    const struct tool_set *tools;
    bool all_declared;
};

static void on_trial_begin(void *user, struct mc_span name)
{
    struct trial *const t = user;
    if (tool_set_find(t->tools, name) == SIZE_MAX) t->all_declared = false;
}

/* Parses s, which begins inside a block, without showing anything. True if all of it is used (white space at the end apart) by
 * at least one complete call to declared tools; closed: and by the end of the block. */
static bool is_good_block(struct answer_stream *a, struct mc_span s, bool closed)
{
    struct trial trial = {a->tools, true};
    const struct call_sink sink = {.user = &trial, .begin = on_trial_begin};
    struct call_parser p;
    size_t used;
    call_parser_init(&p, a->tools, &sink);
    call_parser_step(&p, s, &used);
    const bool good = trial.all_declared && p.n_complete > 0 && p.state == CALL_BETWEEN && p.is_closed == closed &&
                      marker_skip_space(s, used) == s.size;
    if (call_parser_check(&p, NULL)) a->pending.failed = true;
    call_parser_deinit(&p);
    return good;
}

static void begin_calls(struct answer_stream *a)
{
    text_buf_clear(&a->lead);
    text_buf_clear(&a->raw);
    const struct call_sink sink = {a, on_call_begin, on_call_arguments, on_call_end};
    call_parser_deinit(&a->calls);
    call_parser_init(&a->calls, a->tools, &sink);
    a->state = IN_CALLS;
}

/* ---- states; true: got further, look again ---- */

static bool in_reasoning(struct answer_stream *a, bool is_end)
{
    const unsigned wanted = MARKER_THINK_CLOSE | (a->has_tools ? (unsigned)MARKER_BLOCK : 0);
    const struct mc_span s = rest_of(a);
    size_t at, size;
    enum marker which;
    if (a->at_start && s.size > 0) {
        a->at_start = false;
        if (s.data[0] == (uint8_t)MARK_OPEN[0]) {
            a->pos++;
            return true;
        }
    }
    const enum marker_match m = marker_find(s, 0, wanted, &at, &which, &size);
    if (m == MARKER_FOUND && which == MARKER_THINK_CLOSE) {
        show_reasoning(a, at);
        a->pos += size;
        a->state = IN_CONTENT;
        return true;
    }
    if (m != MARKER_FOUND && is_end) {
        show_reasoning(a, s.size);
        return false;
    }
    show_reasoning(a, a->has_tools ? at - marker_newlines_before(s, at) : at);
    if (m != MARKER_FOUND) return false;
    a->state = IN_HELD_BLOCK;
    a->scanned = 0;
    return true;
}

static bool in_held_block(struct answer_stream *a, bool is_end)
{
    const struct mc_span s = rest_of(a);
    const uint8_t *const close =
        s.size > a->scanned ? memchr(s.data + a->scanned, (uint8_t)MARK_CLOSE[0], s.size - a->scanned) : NULL;
    a->scanned = s.size;
    if (close) {
        show_reasoning(a, (size_t)(close - s.data));
        a->pos++;
        a->state = IN_CONTENT;
        return true;
    }
    if (!is_end) return false;
    size_t at, size;
    enum marker which;
    if (marker_find(s, 0, MARKER_BLOCK, &at, &which, &size) != MARKER_FOUND) return false;
    if (!is_good_block(a, text_span(s.data + at + size, s.size - at - size), true)) {
        show_reasoning(a, s.size);
        return false;
    }
    a->pos += at + size;
    begin_calls(a);
    return true;
}

#define STRAY (MARKER_BLOCK_END | MARKER_INVOKE_END | MARKER_PARAMETER_END)

static bool in_content(struct answer_stream *a, bool is_end)
{
    if (!a->has_content) { /* white space is held back */
        const struct mc_span s = rest_of(a);
        const size_t space = marker_skip_space(s, 0);
        if (space > 0) text_buf_add(&a->lead, s.data, space);
        a->pos += space;
    }
    const struct mc_span s = rest_of(a);
    const unsigned think = MARKER_THINK_OPEN | MARKER_THINK_CLOSE, tags = MARKER_BLOCK | MARKER_INVOKE | STRAY;
    size_t at, size;
    enum marker which;
    if (!a->has_content && s.size > 0 && marker_match(s, think, &which, &size) == MARKER_FOUND) {
        if (which == MARKER_THINK_OPEN) a->state = IN_REASONING;
        a->pos += size;
        return true;
    }
    const enum marker_match m = marker_find(s, 0, a->has_tools ? tags : 0, &at, &which, &size);
    if (m != MARKER_FOUND) {
        if (m == MARKER_NO) at = s.size;
        const size_t show = is_end ? s.size : a->has_tools ? at - marker_newlines_before(s, at) : at;
        if (show > 0 || is_end) show_content(a, show);
        return false;
    }
    const bool is_stray = which & STRAY;
    const size_t newlines = is_stray ? 0 : marker_newlines_before(s, at);
    if (at > newlines) show_content(a, at - newlines);
    if (a->is_done) return false;
    a->scanned = 0;
    if (which == MARKER_INVOKE) {
        a->state = IN_BARE_INVOKE;
        return true;
    }
    a->pos += newlines;
    if (!is_stray) {
        begin_calls(a);
        text_buf_add(&a->raw, a->pending.data + a->pos, size);
    }
    a->pos += size;
    return true;
}

static bool in_bare_invoke(struct answer_stream *a, bool is_end)
{
    const struct mc_span s = rest_of(a);
    size_t at, size;
    enum marker which;
    if (marker_find(s, a->scanned, MARKER_INVOKE_END, &at, &which, &size) != MARKER_FOUND) {
        a->scanned = at;
        if (is_end) show_content(a, s.size);
        return false;
    }
    if (is_good_block(a, text_span(s.data, at + size), false)) { /* it skips the newlines in front */
        begin_calls(a);
    } else {
        show_content(a, at + size);
        a->state = IN_CONTENT;
    }
    return !a->is_done;
}

static bool in_calls(struct answer_stream *a, bool is_end, bool was_stopped)
{
    const struct mc_span s = rest_of(a);
    size_t used;
    enum call_status status = call_parser_step(&a->calls, s, &used);
    if (call_parser_check(&a->calls, NULL)) a->pending.failed = true;
    if (a->n_complete == 0) text_buf_add(&a->raw, s.data, used);
    a->pos += used;
    if (status == CALLS_MORE && is_end) {
        const struct mc_span rest = rest_of(a);
        status = call_parser_finish(&a->calls, rest, was_stopped);
        if (status != CALLS_JUNK) a->pos = a->pending.size;
    }
    switch (status) {
    case CALLS_MORE:
        return false;
    case CALLS_DONE:
        a->is_done = true;
        return false;
    case CALLS_EMPTY:
        a->state = IN_CONTENT;
        return true;
    case CALLS_JUNK:
        break;
    }
    show_text(a, text_buf_span(&a->raw));
    a->has_content = true;
    a->state = IN_PLAIN_BLOCK;
    return !a->is_done;
}

static bool in_plain_block(struct answer_stream *a, bool is_end)
{
    const struct mc_span s = rest_of(a);
    size_t at, size;
    enum marker which;
    const enum marker_match m = marker_find(s, 0, MARKER_BLOCK_END, &at, &which, &size);
    if (m == MARKER_FOUND) {
        show_content(a, at + size);
        a->state = IN_CONTENT;
        return !a->is_done;
    }
    show_content(a, is_end ? s.size : at);
    return false;
}

static enum mc_code advance(struct answer_stream *a, bool is_end, bool was_stopped, struct mc_err *err)
{
    bool got_further = !a->is_done;
    while (got_further) switch (a->state) {
        case IN_REASONING:
            got_further = in_reasoning(a, is_end);
            break;
        case IN_HELD_BLOCK:
            got_further = in_held_block(a, is_end);
            break;
        case IN_CONTENT:
            got_further = in_content(a, is_end);
            break;
        case IN_BARE_INVOKE:
            got_further = in_bare_invoke(a, is_end);
            break;
        case IN_CALLS:
            got_further = in_calls(a, is_end, was_stopped);
            break;
        case IN_PLAIN_BLOCK:
            got_further = in_plain_block(a, is_end);
            break;
        }
    if (a->is_done) a->pos = a->pending.size;
    text_buf_drop(&a->pending, a->pos);
    a->pos = 0;
    const struct text_buf *const all[] = {&a->decoded, &a->pending, &a->lead, &a->raw, &a->shown, &a->scratch};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (text_buf_check(all[i], err)) {
            a->is_done = true;
            return MC_ENOMEM;
        }
    return MC_OK;
}

/* ---- public ---- */

enum mc_code answer_stream_create(const struct tokenizer *t, const struct answer_options *options,
                                  const struct answer_events *events, struct answer_stream **out, struct mc_err *err)
{
    if (options->n_stops > ANSWER_STOPS_MAX)
        return mc_fail(err, MC_EARG, 0, "stop: %zu strings, at most %d are accepted", options->n_stops, ANSWER_STOPS_MAX);
    for (size_t i = 0; i < options->n_stops; i++) {
        const struct mc_span s = options->stops[i];
        if (s.size == 0 || s.size > ANSWER_STOP_BYTES_MAX)
            return mc_fail(err, MC_EARG, 0, "stop[%zu]: %zu bytes, expected 1 to %d", i, s.size, ANSWER_STOP_BYTES_MAX);
        if (!utf8_is_valid(s)) return mc_fail(err, MC_EARG, 0, "stop[%zu]: is not valid UTF-8", i);
    }
    struct answer_stream *const a = calloc(1, sizeof *a);
    if (!a) return mc_fail(err, MC_ENOMEM, 0, "no memory for an answer stream");
    const enum mc_code rc = stop_match_create(options->stops, options->n_stops, &a->stops, err);
    if (rc) {
        free(a);
        return rc;
    }
    a->t = t;
    a->tools = options->tools;
    a->has_tools = !tool_set_is_empty(options->tools);
    a->events = *events;
    a->state = options->in_reasoning ? IN_REASONING : IN_CONTENT;
    a->at_start = options->in_reasoning;
    *out = a;
    return MC_OK;
}

void answer_stream_destroy(struct answer_stream *a)
{
    if (!a) return;
    struct text_buf *const all[] = {&a->decoded, &a->pending, &a->lead, &a->raw, &a->shown, &a->scratch};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) text_buf_deinit(all[i]);
    call_parser_deinit(&a->calls);
    stop_match_destroy(a->stops);
    free(a);
}

enum mc_code answer_stream_feed_text(struct answer_stream *a, struct mc_span text, struct mc_err *err)
{
    if (a->is_done) return MC_OK;
    text_buf_clear(&a->decoded);
    utf8_stream_feed(&a->utf8, text, &a->decoded);
    marker_fold_feed(&a->fold, text_buf_span(&a->decoded), &a->pending);
    return advance(a, false, false, err);
}

enum mc_code answer_stream_feed_id(struct answer_stream *a, int32_t id, struct mc_err *err)
{
    if (!a->t) return mc_fail(err, MC_EARG, 0, "an answer stream without a tokenizer takes text, not ids");
    if (a->is_done) return MC_OK;
    const struct tokenizer_special *const s = tokenizer_special(a->t);
    const char *const mark = id < 0                 ? NULL
                             : id == s->dsml        ? MARK_DSML
                             : id == s->think_open  ? MARK_OPEN
                             : id == s->think_close ? MARK_CLOSE
                                                    : NULL;
    marker_fold_flush(&a->fold, &a->pending); /* holds something only if text was fed before */
    if (mark) {
        utf8_stream_flush(&a->utf8, &a->pending);
        text_buf_add_str(&a->pending, mark);
    } else if (tokenizer_type(a->t, id) != TOKENIZER_CONTROL) {
        utf8_stream_feed(&a->utf8, tokenizer_bytes(a->t, id), &a->pending);
    }
    return advance(a, false, false, err);
}

bool answer_stream_is_done(const struct answer_stream *a)
{
    return a->is_done;
}

bool answer_stream_in_reasoning(const struct answer_stream *a)
{
    return a->state == IN_REASONING || a->state == IN_HELD_BLOCK;
}

struct mc_span answer_stream_stop(const struct answer_stream *a)
{
    return stop_match_found(a->stops);
}

enum mc_code answer_stream_finish(struct answer_stream *a, enum answer_finish why, enum answer_finish *out, struct mc_err *err)
{
    const bool was_stopped = why != ANSWER_LENGTH;
    text_buf_clear(&a->decoded);
    utf8_stream_flush(&a->utf8, &a->decoded);
    marker_fold_feed(&a->fold, text_buf_span(&a->decoded), &a->pending);
    marker_fold_flush(&a->fold, &a->pending);
    const enum mc_code rc = advance(a, true, was_stopped, err);
    if (rc) return rc;
    if (answer_stream_stop(a).size > 0) {
        *out = ANSWER_STOP;
        return MC_OK;
    }
    stop_match_flush(a->stops, &a->shown);
    send_shown(a);
    *out = !was_stopped ? ANSWER_LENGTH : a->n_complete > 0 ? ANSWER_TOOL_CALLS : ANSWER_STOP;
    return text_buf_check(&a->shown, err);
}
