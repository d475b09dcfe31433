/* tool_calls.h - reads a block of tool calls as models really write them; for the answer stream only.
 *
 * Input is text in the alphabet of markers.h, from right after the block's opening tag. The events do not depend on how it is
 * cut. Rules: spec of the chat form, tolerant parser, state T. */
#ifndef RUNTIME_TEXT_TOOL_CALLS_H
#define RUNTIME_TEXT_TOOL_CALLS_H

#include "runtime/text/text_buf.h"

struct tool_set;

/* Spans are plain text. The joined arguments of a complete call are a JSON object. */
struct call_sink {
    void *user;
    void (*begin)(void *user, struct mc_span name);
    void (*arguments)(void *user, struct mc_span piece);
    void (*end)(void *user, bool complete);
};

enum call_status {
    CALLS_MORE,  /* everything usable is used */
    CALLS_DONE,  /* the block is over and had a call: the output is over */
    CALLS_EMPTY, /* the block was closed and had none */
    CALLS_JUNK   /* something else stands where the first call should be, or is no call: the block is plain text */
};

enum call_state { CALL_BETWEEN, CALL_BODY, CALL_VALUE, CALL_JSON };

/* How the value of the open parameter becomes JSON. */
enum call_value {
    CALL_VALUE_STRING, /* verbatim */
    CALL_VALUE_JSON,   /* as it stands if it is JSON, else verbatim */
    CALL_VALUE_GUESS   /* as it stands if it is JSON but no string, else verbatim */
};

struct call_parser {
    const struct tool_set *tools;
    struct call_sink sink;
    enum call_state state;
    size_t n_complete; /* calls */
    bool is_closed;    /* the block's end tag was seen */
    size_t scanned;    /* of a held value: no marker begins before it */
    /* the open call */
    size_t tool;           /* index in tools, SIZE_MAX: undeclared */
    struct text_buf names; /* of its parameters so far, each in quotes */
    size_t n_parameters, n_sent;
    bool is_whole; /* its arguments were sent whole: parameters that follow are dropped */
    /* the open parameter */
    struct text_buf name;
    enum call_value value;
    bool is_held, is_wrapper, is_dropped;
    struct text_buf scratch, out;
};

void call_parser_init(struct call_parser *p, const struct tool_set *tools, const struct call_sink *sink);
void call_parser_deinit(struct call_parser *p);
/* Takes in the front of `in`; *used says how much; the rest must be at the front of the next `in`. */
enum call_status call_parser_step(struct call_parser *p, struct mc_span in, size_t *used);
/* End of generation, `rest` is what step left. was_stopped: by the model, not by a limit. CALLS_JUNK: the block becomes
 * content; CALLS_EMPTY: it is dropped. */
enum call_status call_parser_finish(struct call_parser *p, struct mc_span rest, bool was_stopped);
MC_MUST_CHECK enum mc_code call_parser_check(const struct call_parser *p, struct mc_err *err); /* MC_ENOMEM after the fact */

#endif
