/* control_request.h - one line of the control socket: what it asks for, and the answer. No threads, no system calls: whoever
 * reads lines from somewhere hands them in and sends what comes out. */
#ifndef RUNTIME_CONTROL_CONTROL_REQUEST_H
#define RUNTIME_CONTROL_CONTROL_REQUEST_H

#include "platform/base/bytes.h"
#include "platform/base/json_out.h"
#include "runtime/control/settings.h"

enum { CONTROL_PROTOCOL = 1, CONTROL_LINE_MAX = 64 << 10, CONTROL_DEPTH_MAX = 16 };

/* The program behind the socket. Each function writes members into the object that is open; any may be NULL. They are called by
 * the thread of the socket, and must not wait for the engine. */
struct control_host {
    void *user;
    const char *server; /* "modchip 0.1.0" */
    const char *model;
    void (*facts)(void *user, struct json_out *j); /* settings that can only be given at the start */
    const char *const *fact_keys;                  /* their names, up to a NULL */
    void (*stats)(void *user, struct json_out *j);
    void (*cost)(void *user, const struct moe_settings *s, struct json_out *j); /* what was measured of such settings */
    void (*stop)(void *user, bool now);                                         /* the answer is on its way */
};

struct control_requests {
    struct settings_box *box;
    struct moe_settings start; /* what "reset" goes back to */
    struct control_host host;
};

enum control_topic { CONTROL_WATCH_SETTINGS = 1, CONTROL_WATCH_STATS = 2 };

enum control_deed {
    CONTROL_ANSWER, /* nothing but `answer`, */
    CONTROL_LATER,  /* or, once `generation` is applied, `answer`, or `late` when `timeout_ms` are over first */
    CONTROL_WATCH,  /* `topics` is the new set of them, with `interval_ms` */
    CONTROL_STOP,
    CONTROL_STOP_NOW
};

struct control_outcome {
    enum control_deed deed;
    bool refused;                 /* `answer` is an error */
    struct json_out answer, late; /* without a line feed; size 0: nothing is to be sent */
    uint32_t generation;
    unsigned timeout_ms, topics, interval_ms;
};

/* The line without its end. `topics`: what this connection watches so far. *out is filled in any case; deinit it. */
void control_request(const struct control_requests *r, struct mc_span line, unsigned topics, struct control_outcome *out);
void control_outcome_deinit(struct control_outcome *out);

/* What is said without being asked: the greeting, a change since `before`, figures, an error of the connection. Each inits *j.
 */
void control_hello(const struct control_requests *r, unsigned long pid, struct json_out *j);
void control_settings_event(const struct moe_settings *before, const struct settings_state *now, uint64_t dropped,
                            struct json_out *j);
void control_stats_event(const struct control_requests *r, uint64_t dropped, struct json_out *j);
void control_error_line(const char *code, const char *message, struct json_out *j);

#endif
