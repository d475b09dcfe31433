/* Talking to other programs of the same user: bytes both ways, callers that vanish or never read, names that are taken, and
 * (Linux) what killed programs leave behind, what is no socket, and callers of another user. */
#define _GNU_SOURCE
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __linux__
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#define PATH "test_socket.sock"
#else
#define PATH "\\\\.\\pipe\\modchip-test-socket"
#endif

static struct os_listener *open_listener(void)
{
    struct os_listener *l = NULL;
    struct mc_err err = {0};
    if (os_listener_open(PATH, &l, &err)) fail_msg("%s", err.msg);
    return l;
}

static void refuse(const char *path, enum mc_code want, const char *says)
{
    struct os_listener *l = NULL;
    struct mc_err err = {0};
    assert_int_equal(os_listener_open(path, &l, &err), want);
    if (!strstr(err.msg, says)) fail_msg("'%s' does not say '%s'", err.msg, says);
}

static struct os_conn *accept_one(struct os_listener *l)
{
    struct os_conn *c = NULL;
    for (int i = 0; i < 200; i++) {
        const enum os_caller who = os_listener_accept(l, &c);
        if (who == OS_CALLER_OURS) return c;
        assert_int_equal(who, OS_CALLER_NONE);
        os_conn_wait(l, NULL, 0, 100);
    }
    fail_msg("nobody came");
    return NULL;
}

static void call(struct os_listener *l, struct os_conn **client, struct os_conn **server)
{
    struct mc_err err = {0};
    if (os_conn_open(PATH, client, &err)) fail_msg("%s", err.msg);
    *server = accept_one(l);
}

/* Exactly so many bytes, or the end (returns how many came). */
static size_t take(struct os_conn *c, char *buf, size_t size)
{
    size_t n = 0;
    for (int idle = 0; n < size && idle < 200;) {
        const int64_t got = os_conn_read(c, buf + n, size - n);
        if (got < 0) break;
        n += (size_t)got;
        if (got > 0) continue;
        os_conn_wait(NULL, &(struct os_conn_wish){c, true, false}, 1, 100);
        idle++;
    }
    return n;
}

static void give(struct os_conn *c, const char *data, size_t size)
{
    while (size) {
        const int64_t put = os_conn_write(c, data, size);
        assert_true(put >= 0);
        data += put;
        size -= (size_t)put;
        if (!put) os_conn_wait(NULL, &(struct os_conn_wish){c, false, true}, 1, 100);
    }
}

static void bytes_go_both_ways(void **state)
{
    (void)state;
    struct os_listener *l = open_listener();
    struct os_conn *a[3], *b[3];
    char buf[64];
    for (int i = 0; i < 3; i++) call(l, &a[i], &b[i]);
    for (int i = 0; i < 3; i++) {
        give(a[i], "hello", 5);
        assert_int_equal(take(b[i], buf, 5), 5);
        assert_memory_equal(buf, "hello", 5);
        assert_int_equal(os_conn_read(b[i], buf, sizeof buf), 0); /* none for now */
        give(b[i], "and back", 8);
        assert_int_equal(take(a[i], buf, 8), 8);
        assert_memory_equal(buf, "and back", 8);
    }
    give(b[0], "last words", 10);
    os_conn_close(b[0]); /* what was written can still be read */
    assert_int_equal(take(a[0], buf, sizeof buf), 10);
    assert_true(os_conn_read(a[0], buf, sizeof buf) < 0);
    os_conn_close(a[1]); /* a caller that vanishes */
    assert_int_equal(take(b[1], buf, sizeof buf), 0);
    assert_true(os_conn_read(b[1], buf, sizeof buf) < 0);
    os_conn_close(a[0]);
    os_conn_close(b[1]);
    os_conn_close(a[2]);
    os_conn_close(b[2]);
    os_listener_close(l);
}

static void nobody_who_does_not_read_blocks(void **state)
{
    (void)state;
    struct os_listener *l = open_listener();
    struct os_conn *a, *b;
    char *big = calloc(1, 1 << 20), *got = calloc(1, 1 << 20);
    call(l, &a, &b);
    for (size_t i = 0; i < 1 << 20; i++) big[i] = (char)(i * 7 + i / 1000);
    size_t put = 0;
    for (int64_t n; put < 1 << 20 && (n = os_conn_write(b, big + put, (1 << 20) - put)) > 0;) put += (size_t)n;
    assert_true(put < 1 << 20); /* it is told to wait */
    os_conn_wait(NULL, &(struct os_conn_wish){b, false, true}, 1, 1);
    assert_int_equal(take(a, got, put), put);
    assert_memory_equal(got, big, put);
    for (int i = 0; i < 100 && os_conn_write(b, "x", 1) != 1; i++)
        os_conn_wait(NULL, &(struct os_conn_wish){b, false, true}, 1, 100);
    assert_int_equal(take(a, got, 1), 1);
    os_conn_close(a);
    int64_t n = 0; /* nobody is there: it is said, not signalled */
    for (int i = 0; i < 100 && n >= 0; i++) {
        n = os_conn_write(b, "y", 1);
        os_sleep_ms(1);
    }
    assert_true(n < 0);
    os_conn_close(b);
    os_listener_close(l);
    free(big);
    free(got);
}

static void wake_up(void *arg)
{
    os_sleep_ms(50);
    os_listener_wake(arg);
}

static void a_wait_can_be_ended(void **state)
{
    (void)state;
    struct os_listener *l = open_listener();
    struct os_thread *t;
    struct mc_err err = {0};
    assert_int_equal(os_thread_start(wake_up, l, "waker", &t, &err), MC_OK);
    os_conn_wait(l, NULL, 0, OS_WAIT_FOREVER);
    os_thread_join(t);
    os_conn_wait(l, NULL, 0, 20);
    os_listener_close(l);
}

static void one_name_one_listener(void **state)
{
    (void)state;
    struct os_listener *l = open_listener();
    struct os_conn *a, *b;
    struct mc_err err = {0};
    refuse(PATH, MC_EBUSY, "another program listens there");
    call(l, &a, &b); /* the first one is none the worse for it */
    os_conn_close(a);
    os_conn_close(b);
    os_listener_close(l);
    assert_int_equal(os_conn_open(PATH, &a, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "nobody listens there"));
    l = open_listener();
    os_listener_close(l);
}

static void count_path(void *user, const char *path)
{
    const char *const want = *(const char **)user;
    if (want && !strcmp(path, want)) *(const char **)user = NULL;
}

#ifdef __linux__

/* As a killed program leaves it. */
static void leave_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
}

static void what_a_killed_program_left_is_replaced(void **state)
{
    (void)state;
    struct stat st;
    int ready[2];
    leave_socket(PATH);
    os_listener_close(open_listener());
    assert_int_not_equal(lstat(PATH, &st), 0);
    assert_int_not_equal(lstat(PATH ".lock", &st), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) { /* a real one that is killed, lock and all */
        struct os_listener *l;
        (void)!write(ready[1], os_listener_open(PATH, &l, NULL) ? "n" : "y", 1);
        for (;;) pause();
    }
    char came = 0;
    assert_int_equal(read(ready[0], &came, 1), 1);
    assert_int_equal(came, 'y');
    refuse(PATH, MC_EBUSY, "another program listens there");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(lstat(PATH, &st), 0);
    struct os_listener *l = open_listener();
    assert_int_equal(lstat(PATH, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    os_listener_close(l);
    close(ready[0]);
    close(ready[1]);
}

static void what_is_not_ours_is_left_alone(void **state)
{
    (void)state;
    struct stat st;
    struct os_listener *l;
    struct mc_err err = {0};
    FILE *f = fopen(PATH, "w");
    assert_non_null(f);
    fputs("dear", f);
    fclose(f);
    refuse(PATH, MC_EIO, "no socket; it is left alone");
    assert_int_equal(stat(PATH, &st), 0);
    assert_int_equal(st.st_size, 4);
    remove(PATH);
    assert_int_equal(mkdir(PATH, 0700), 0);
    refuse(PATH, MC_EIO, "no socket; it is left alone");
    assert_int_equal(rmdir(PATH), 0);
    assert_int_equal(symlink("test_target", PATH), 0);
    refuse(PATH, MC_EIO, "no socket; it is left alone");
    assert_int_equal(unlink(PATH), 0);
    assert_int_equal(mkfifo(PATH, 0600), 0);
    refuse(PATH, MC_EIO, "no socket; it is left alone");
    assert_int_equal(unlink(PATH), 0);

    /* A living socket of a program that knows nothing of our lock. */
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = PATH};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    refuse(PATH, MC_EBUSY, "another program listens there");
    assert_int_equal(lstat(PATH, &st), 0);
    close(fd);
    unlink(PATH);

    /* A file that took our place is not removed at the end. */
    l = open_listener();
    unlink(PATH);
    leave_socket(PATH);
    os_listener_close(l);
    assert_int_equal(lstat(PATH, &st), 0);
    unlink(PATH);

    char path[200];
    memset(path, 'x', sizeof path);
    path[120] = '\0';
    assert_int_equal(os_listener_open(path, &l, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "at most 107 bytes, this one has 120"));
    refuse("no-such-folder/s.sock", MC_EIO, "cannot be made");
}

static void the_usual_place(void **state)
{
    (void)state;
    char dir[] = "/tmp/modchip-sock-XXXXXX", path[256], folder[64], left[80], lock[96];
    struct mc_err err = {0};
    struct stat st;
    assert_non_null(mkdtemp(dir));
    setenv("XDG_RUNTIME_DIR", dir, 1);
    snprintf(folder, sizeof folder, "%s/modchip", dir);
    if (os_listener_path(path, sizeof path, &err)) fail_msg("%s", err.msg);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    snprintf(left, sizeof left, "%s/17.sock", folder);
    snprintf(lock, sizeof lock, "%s.lock", left);
    leave_socket(left);
    const char *want = left;
    os_listener_each(count_path, &want);
    assert_null(want);
    FILE *f = fopen(lock, "w");
    assert_non_null(f);
    fclose(f);
    if (os_listener_path(path, sizeof path, &err)) fail_msg("%s", err.msg); /* sweeps: nobody holds the lock */
    assert_int_not_equal(lstat(left, &st), 0);
    assert_int_not_equal(lstat(lock, &st), 0);
    assert_int_equal(chmod(folder, 0750), 0);
    assert_int_equal(os_listener_path(path, sizeof path, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "this user alone"));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(symlink("/", folder), 0);
    assert_int_equal(os_listener_path(path, sizeof path, &err), MC_EIO);
    unlink(folder);
    unsetenv("XDG_RUNTIME_DIR");
    setenv("HOME", dir, 1);
    if (os_listener_path(path, sizeof path, &err)) fail_msg("%s", err.msg);
    snprintf(left, sizeof left, "%s/.local/state/modchip", dir);
    if (stat("/run/user/0", &st)) assert_int_equal(stat(left, &st), 0);
    rmdir(left);
    snprintf(left, sizeof left, "%s/.local/state", dir);
    rmdir(left);
    snprintf(left, sizeof left, "%s/.local", dir);
    rmdir(left);
    rmdir(dir);
}

static void callers_of_another_user_are_sent_away(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        printf("skipped: only root can become somebody else\n");
        return;
    }
    struct os_listener *l = open_listener();
    assert_int_equal(chmod(PATH, 0666), 0); /* as if the folder's and the file's rights had failed us */
    assert_int_equal(chmod(".", 0755), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = PATH};
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        char byte;
        if (setuid(65534) || connect(fd, (struct sockaddr *)&a, sizeof a)) _exit(77); /* the way there may be closed to them */
        _exit(read(fd, &byte, 1) == 0 ? 0 : 1);
    }
    enum os_caller who = OS_CALLER_NONE;
    struct os_conn *c = NULL;
    for (int i = 0; i < 50 && who == OS_CALLER_NONE; i++) {
        who = os_listener_accept(l, &c);
        if (who == OS_CALLER_NONE) os_conn_wait(l, NULL, 0, 20);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 77)
        printf("skipped: another user cannot reach this folder\n");
    else {
        assert_int_equal(who, OS_CALLER_STRANGER);
        assert_int_equal(WEXITSTATUS(status), 0); /* without a byte */
    }
    os_listener_close(l);
}

#else

static void the_usual_place(void **state)
{
    (void)state;
    char path[256];
    struct mc_err err = {0};
    struct os_listener *l;
    if (os_listener_path(path, sizeof path, &err)) fail_msg("%s", err.msg);
    assert_int_equal(strncmp(path, "\\\\.\\pipe\\modchip-", 17), 0);
    if (os_listener_open(path, &l, &err)) fail_msg("%s", err.msg);
    const char *want = path;
    os_listener_each(count_path, &want); /* our own is left out */
    assert_non_null(want);
    os_listener_close(l);
    refuse("C:\\socket", MC_EARG, "the name of a pipe");
}

#endif

static int set_up(void **state)
{
    (void)state;
    (void)remove(PATH);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(bytes_go_both_ways),
        TEST(nobody_who_does_not_read_blocks),
        TEST(a_wait_can_be_ended),
        TEST(one_name_one_listener),
#ifdef __linux__
        TEST(what_a_killed_program_left_is_replaced),
        TEST(what_is_not_ours_is_left_alone),
        TEST(callers_of_another_user_are_sent_away),
#endif
        TEST(the_usual_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
