/* control_socket.c - see control_socket.h.
 *
 * The thread goes round in turns: new callers, lines of each connection as far as the turn's budget reaches, events that are
 * due, bytes that can be sent; then it sleeps until one of them has something new. A connection is four things: bytes that have
 * come and are no line yet, bytes that wait to be sent, answers that wait for the engine, and what it watches. */
#include "runtime/control/control_socket.h"

#include "platform/base/log.h"
#include "platform/os.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_CAP = CONTROL_LINE_MAX + 1,      /* a line and its end */
    WAITS_MAX = 8,                      /* answers that wait for the engine, of one connection; further lines wait too */
    EVENT_ROOM = CONTROL_QUEUE_MAX / 4, /* events are left out beyond so many unread bytes */
    SILENT_MS = 1000,                   /* who has said nothing valid for so long makes room when all places are taken */
    LINGER_MS = 1000,                   /* a connection that is being closed is given so long to read the last answer */
    APPLIED_LOOK_MS = 2,
    SETTINGS_LOOK_MS = 20
};
#define MS UINT64_C(1000000)

struct waiting {
    struct json_out answer, late;
    uint32_t generation;
    uint64_t until_ns;
};

struct peer {
    struct os_conn *conn; /* NULL: the place is free */
    char *in;             /* [IN_CAP] */
    size_t n_in, scanned; /* bytes; of them known to hold no end of a line */
    char *out;
    size_t n_out, sent, out_cap;
    bool ended;   /* nothing more will come */
    bool closing; /* nothing more is read; closed once everything is sent, or at until_ns */
    bool broken;  /* close at once */
    bool valid;   /* has made a request that was none of garbage */
    uint64_t until_ns, since_ns;
    struct waiting waits[WAITS_MAX];
    size_t n_waits;
    unsigned topics, interval_ms;
    uint64_t next_stats_ns, dropped;
    uint32_t seen_generation; /* of the settings it knows by events, */
    struct moe_settings seen;
};

struct control_socket {
    struct control_requests requests;
    unsigned long pid;
    struct os_listener *listener;
    struct os_thread *thread;
    _Atomic uint32_t stop;
    _Atomic uint64_t connections, refused, turned_away, lines;
    struct peer peers[CONTROL_CONNS_MAX];
    unsigned next;          /* the peer whose turn comes first */
    int budget;             /* lines that this turn may still handle */
    bool more;              /* something is left that could have been handled */
    enum control_deed deed; /* STOP once somebody asked for it */
};

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- a connection ----------------------------------------------------------------------------------------------------- */

static void drop_waits(struct peer *p)
{
    for (size_t i = 0; i < p->n_waits; i++) {
        json_out_deinit(&p->waits[i].answer);
        json_out_deinit(&p->waits[i].late);
    }
    p->n_waits = 0;
}

static void close_peer(struct peer *p)
{
    os_conn_close(p->conn);
    drop_waits(p);
    free(p->in);
    free(p->out);
    memset(p, 0, sizeof *p);
}

/* Queues a line. A peer whose queue is full does not read, and is closed. */
static void send_line(struct control_socket *c, struct peer *p, const struct json_out *j)
{
    if (j->failed) p->broken = true;
    if (p->broken || !j->size) return;
    if (p->sent) {
        memmove(p->out, p->out + p->sent, p->n_out - p->sent);
        p->n_out -= p->sent;
        p->sent = 0;
    }
    const size_t need = p->n_out + j->size + 1;
    if (need > CONTROL_QUEUE_MAX) {
        p->broken = true;
        count(&c->turned_away);
        return;
    }
    if (need > p->out_cap || !p->out) {
        size_t cap = p->out_cap ? p->out_cap : 4096;
        while (cap < need) cap *= 2;
        char *const grown = realloc(p->out, cap);
        if (!grown) {
            p->broken = true;
            return;
        }
        p->out = grown;
        p->out_cap = cap;
    }
    memcpy(p->out + p->n_out, j->text, j->size);
    p->out[need - 1] = '\n';
    p->n_out = need;
}

static void flush(struct peer *p)
{
    while (!p->broken && p->sent < p->n_out) {
        const int64_t n = os_conn_write(p->conn, p->out + p->sent, p->n_out - p->sent);
        if (n < 0) p->broken = true;
        if (n <= 0) return;
        p->sent += (size_t)n;
    }
    p->sent = p->n_out = 0;
}

static void begin_closing(struct peer *p)
{
    p->closing = true;
    p->until_ns = os_clock_ns() + LINGER_MS * MS;
}

static void send_error(struct control_socket *c, struct peer *p, const char *code, const char *message)
{
    struct json_out j;
    control_error_line(code, message, &j);
    send_line(c, p, &j);
    json_out_deinit(&j);
    begin_closing(p);
}

static void watch(struct control_socket *c, struct peer *p, const struct control_outcome *o)
{
    if (o->topics & ~p->topics & CONTROL_WATCH_SETTINGS) {
        struct settings_state now;
        settings_box_get(c->requests.box, &now);
        p->seen = now.settings;
        p->seen_generation = now.generation;
    }
    p->topics = o->topics;
    p->interval_ms = o->interval_ms ? o->interval_ms : p->interval_ms;
    p->next_stats_ns = os_clock_ns();
}

static void handle_line(struct control_socket *c, struct peer *p, struct mc_span line)
{
    struct control_outcome o;
    if (line.size && line.data[line.size - 1] == '\r') line.size--;
    if (!line.size) return;
    count(&c->lines);
    control_request(&c->requests, line, p->topics, &o);
    if (o.deed == CONTROL_LATER) {
        p->waits[p->n_waits++] = (struct waiting){o.answer, o.late, o.generation, os_clock_ns() + (uint64_t)o.timeout_ms * MS};
        p->valid = true;
        return;
    }
    send_line(c, p, &o.answer);
    p->valid = p->valid || !o.refused;
    if (o.deed == CONTROL_WATCH) watch(c, p, &o);
    if (o.deed > c->deed && o.deed >= CONTROL_STOP) c->deed = o.deed;
    control_outcome_deinit(&o);
}

/* As many lines as the turn allows out of what has come. */
static void handle_lines(struct control_socket *c, struct peer *p)
{
    size_t from = 0;
    while (!p->broken && !p->closing && p->n_waits < WAITS_MAX) {
        const char *const end = memchr(p->in + p->scanned, '\n', p->n_in - p->scanned);
        if (!end) {
            p->scanned = p->n_in;
            break;
        }
        if (c->budget <= 0) {
            c->more = true;
            break;
        }
        c->budget--;
        const size_t at = (size_t)(end - p->in);
        handle_line(c, p, (struct mc_span){(const uint8_t *)p->in + from, at - from});
        from = p->scanned = at + 1;
    }
    memmove(p->in, p->in + from, p->n_in - from);
    p->n_in -= from;
    p->scanned -= from;
    if (p->scanned < IN_CAP || p->closing) return;
    count(&c->turned_away);
    send_error(c, p, "too_long", "a line holds at most 65536 bytes");
}

static void read_peer(struct control_socket *c, struct peer *p)
{
    if (!p->conn || p->broken) return;
    if (!p->closing && !p->ended && p->n_in < IN_CAP) {
        const int64_t n = os_conn_read(p->conn, p->in + p->n_in, IN_CAP - p->n_in);
        if (n < 0) p->ended = true;
        if (n > 0) p->n_in += (size_t)n;
    }
    handle_lines(c, p);
    /* Who has gone gets the answers to what was asked before; the last line had no end and is none. */
    if (p->ended && !p->closing && !p->n_waits && !memchr(p->in, '\n', p->n_in)) begin_closing(p);
}

/* Answers for which the engine was waited. */
static void answer_waits(struct control_socket *c, struct peer *p, uint64_t now_ns)
{
    struct settings_state now;
    if (!p->n_waits) return;
    settings_box_get(c->requests.box, &now);
    size_t left = 0;
    for (size_t i = 0; i < p->n_waits; i++) {
        struct waiting *const w = &p->waits[i];
        const bool applied = now.applied_generation >= w->generation;
        if (!applied && now_ns < w->until_ns) {
            p->waits[left++] = *w;
            continue;
        }
        send_line(c, p, applied ? &w->answer : &w->late);
        json_out_deinit(&w->answer);
        json_out_deinit(&w->late);
    }
    p->n_waits = left;
}

/* ---- events ----------------------------------------------------------------------------------------------------------- */

/* An event, unless the peer is behind with reading. */
static void send_event(struct control_socket *c, struct peer *p, struct json_out *j)
{
    if (p->n_out - p->sent > EVENT_ROOM) {
        p->dropped++;
    } else {
        send_line(c, p, j);
        p->dropped = 0;
    }
    json_out_deinit(j);
}

static void send_events(struct control_socket *c, struct peer *p, uint64_t now_ns)
{
    struct json_out j;
    if (p->topics & CONTROL_WATCH_SETTINGS) {
        struct settings_state now;
        settings_box_get(c->requests.box, &now);
        if (now.generation != p->seen_generation) {
            control_settings_event(&p->seen, &now, p->dropped, &j);
            send_event(c, p, &j);
            p->seen = now.settings;
            p->seen_generation = now.generation;
        }
    }
    if (p->topics & CONTROL_WATCH_STATS && now_ns >= p->next_stats_ns) {
        control_stats_event(&c->requests, p->dropped, &j);
        send_event(c, p, &j);
        p->next_stats_ns = now_ns + p->interval_ms * MS;
    }
}

/* ---- callers ---------------------------------------------------------------------------------------------------------- */

/* A free place; else that of the peer that has been there longest without a valid word. NULL: they are all taken. */
static struct peer *place_for(struct control_socket *c, uint64_t now_ns)
{
    struct peer *silent = NULL;
    for (unsigned i = 0; i < CONTROL_CONNS_MAX; i++) {
        struct peer *const p = &c->peers[i];
        if (!p->conn) return p;
        if (!p->valid && now_ns - p->since_ns > SILENT_MS * MS && (!silent || p->since_ns < silent->since_ns)) silent = p;
    }
    if (silent) close_peer(silent);
    return silent;
}

static void turn_away(struct control_socket *c, struct os_conn *conn)
{
    struct json_out j;
    count(&c->turned_away);
    control_error_line("busy", "16 connections are open, no further one is taken", &j);
    if (!j.failed && os_conn_write(conn, j.text, j.size) > 0) (void)os_conn_write(conn, "\n", 1);
    json_out_deinit(&j);
    os_conn_close(conn);
}

static void welcome(struct control_socket *c, struct os_conn *conn)
{
    const uint64_t now_ns = os_clock_ns();
    struct peer *const p = place_for(c, now_ns);
    struct json_out j;
    count(&c->connections);
    if (!p) {
        turn_away(c, conn);
        return;
    }
    *p = (struct peer){.conn = conn, .since_ns = now_ns, .in = malloc(IN_CAP)};
    p->broken = !p->in;
    control_hello(&c->requests, c->pid, &j);
    send_line(c, p, &j);
    json_out_deinit(&j);
}

static void accept_callers(struct control_socket *c)
{
    struct os_conn *conn;
    for (int calls = 0; calls < CONTROL_TURN_CALLS; calls++) {
        switch (os_listener_accept(c->listener, &conn)) {
        case OS_CALLER_NONE:
            return;
        case OS_CALLER_OURS:
            welcome(c, conn);
            break;
        case OS_CALLER_STRANGER:
            count(&c->refused);
            break;
        case OS_CALLER_FAILED: /* out of descriptors or memory: later */
            c->more = true;
            return;
        }
    }
    c->more = true; /* perhaps; the next turn tells */
}

/* ---- the thread ------------------------------------------------------------------------------------------------------- */

static void turn(struct control_socket *c)
{
    const uint64_t now_ns = os_clock_ns();
    c->budget = CONTROL_TURN_LINES;
    c->more = false;
    for (unsigned i = 0; i < CONTROL_CONNS_MAX; i++) read_peer(c, &c->peers[(c->next + i) % CONTROL_CONNS_MAX]);
    c->next = (c->next + 1) % CONTROL_CONNS_MAX;
    accept_callers(c);
    for (unsigned i = 0; i < CONTROL_CONNS_MAX; i++) {
        struct peer *const p = &c->peers[i];
        if (!p->conn) continue;
        answer_waits(c, p, now_ns);
        if (!p->closing) send_events(c, p, now_ns);
        flush(p);
        if (p->broken || (p->closing && (p->n_out == 0 || now_ns > p->until_ns))) close_peer(p);
    }
}

static int sooner(int ms, int other)
{
    return ms < 0 || other < ms ? other : ms;
}

/* Sleeps until there is something to do. */
static void sleep_until_called(struct control_socket *c)
{
    struct os_conn_wish wishes[CONTROL_CONNS_MAX];
    size_t n = 0;
    int ms = OS_WAIT_FOREVER;
    const uint64_t now_ns = os_clock_ns();
    for (unsigned i = 0; i < CONTROL_CONNS_MAX; i++) {
        const struct peer *const p = &c->peers[i];
        if (!p->conn) continue;
        const bool reads = !p->ended && !p->closing && p->n_in < IN_CAP && p->n_waits < WAITS_MAX;
        wishes[n++] = (struct os_conn_wish){p->conn, reads, p->sent < p->n_out};
        if (p->n_waits) ms = sooner(ms, APPLIED_LOOK_MS);
        if (p->topics & CONTROL_WATCH_SETTINGS) ms = sooner(ms, SETTINGS_LOOK_MS);
        if (p->topics & CONTROL_WATCH_STATS)
            ms = sooner(ms, p->next_stats_ns > now_ns ? (int)((p->next_stats_ns - now_ns) / MS) + 1 : 0);
        if (p->closing) ms = sooner(ms, SETTINGS_LOOK_MS);
    }
    os_conn_wait(c->listener, wishes, n, ms);
}

static void serve(void *arg)
{
    struct control_socket *const c = arg;
    while (!atomic_load(&c->stop)) {
        turn(c);
        if (c->deed >= CONTROL_STOP) {
            const bool now = c->deed == CONTROL_STOP_NOW;
            mc_log(MC_LOG_INFO, "control: stop mode=%s", now ? "now" : "graceful");
            c->deed = CONTROL_ANSWER;
            if (c->requests.host.stop) c->requests.host.stop(c->requests.host.user, now);
        }
        if (c->more)
            os_sleep_ms(CONTROL_TURN_PAUSE_MS);
        else
            sleep_until_called(c);
    }
}

enum mc_code control_socket_start(const struct control_socket_options *opt, struct control_socket **out, struct mc_err *err)
{
    struct settings_state now;
    struct control_socket *c = calloc(1, sizeof *c);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "no memory for the control socket");
    settings_box_get(opt->box, &now);
    c->requests = (struct control_requests){opt->box, now.settings, opt->host};
    c->pid = opt->pid;
    enum mc_code code = os_listener_open(opt->path, &c->listener, err);
    if (!code) code = os_thread_start(serve, c, "control", &c->thread, err);
    if (code) {
        control_socket_stop(c);
        return code;
    }
    mc_log(MC_LOG_INFO, "control: socket path=%s", opt->path);
    *out = c;
    return MC_OK;
}

void control_socket_stop(struct control_socket *c)
{
    if (!c) return;
    atomic_store(&c->stop, 1);
    if (c->listener) os_listener_wake(c->listener);
    os_thread_join(c->thread);
    for (unsigned i = 0; i < CONTROL_CONNS_MAX; i++)
        if (c->peers[i].conn) close_peer(&c->peers[i]);
    os_listener_close(c->listener);
    free(c);
}

struct control_socket_counts control_socket_counts_get(const struct control_socket *c)
{
    return (struct control_socket_counts){
        atomic_load_explicit(&c->connections, memory_order_relaxed), atomic_load_explicit(&c->refused, memory_order_relaxed),
        atomic_load_explicit(&c->turned_away, memory_order_relaxed), atomic_load_explicit(&c->lines, memory_order_relaxed)};
}
