/* control_socket.h - the door to a running program for others of the same user: JSON lines over a socket or named pipe.
 *
 * One thread serves all connections; compute threads never see it, and it never waits for them nor for a peer. Whatever a peer
 * does costs a bounded part of one core: so many lines and calls are handled at a time, then comes a pause. */
#ifndef RUNTIME_CONTROL_CONTROL_SOCKET_H
#define RUNTIME_CONTROL_CONTROL_SOCKET_H

#include "runtime/control/control_request.h"

enum {
    CONTROL_CONNS_MAX = 16,
    CONTROL_QUEUE_MAX = 1 << 20, /* bytes that wait for a peer to read them; then it is closed */
    CONTROL_TURN_LINES = 8,      /* of all connections, handled at a time, */
    CONTROL_TURN_CALLS = 4,      /* and so many new ones; */
    CONTROL_TURN_PAUSE_MS = 4    /* then, if there are more, a pause */
};

struct control_socket_options {
    const char *path; /* as of os_listener_open */
    unsigned long pid;
    struct settings_box *box; /* "reset" goes back to what is in force at the start */
    struct control_host host;
};

struct control_socket_counts {
    uint64_t connections, peers_refused /* other users */, turned_away /* too many, too long a line, too slow a reader */,
        lines;
};

struct control_socket;

/* Errors: those of os_listener_open, MC_ENOMEM, MC_EIO (no thread). */
MC_MUST_CHECK enum mc_code control_socket_start(const struct control_socket_options *opt, struct control_socket **out,
                                                struct mc_err *err);
/* Ends the thread and closes every connection. NULL does nothing. */
void control_socket_stop(struct control_socket *c);
struct control_socket_counts control_socket_counts_get(const struct control_socket *c); /* threads: any */

#endif
