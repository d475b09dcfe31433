/* test_os_linux.c - what only Linux can do to a program: pipes and devices as files, a mapped file that is cut, signals,
 * control groups.
 *
 * Goal: none of it hangs, kills or misleads. Method: the real thing where it needs no rights; the control groups are folders of
 * files under a false root; what ends a process runs in a child. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef __linux__
#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put_file(const char *path, const void *data, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    close(fd);
}

static void pipes_and_devices_are_refused_at_once(void **state)
{
    (void)state;
    static const char fifo[] = "test_os_linux-fifo.tmp";
    struct mc_err err;
    struct os_file *f;
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    alarm(20); /* a blocking open would end the test here */
    assert_int_equal(os_file_open(fifo, &f, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "a pipe"));
    assert_int_equal(os_file_open("/dev/zero", &f, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "a device"));
    alarm(0);
    unlink(fifo);
    char *data;
    size_t size;
    assert_int_equal(os_file_read_all("/dev/zero", 1000, &data, &size, &err), MC_EFORMAT);
}

static void standard_input_can_be_a_pipe(void **state)
{
    (void)state;
    int ends[2];
    const int saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "hello", 5), 5);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    char *data;
    size_t size;
    const enum mc_code code = os_file_read_all("-", 100, &data, &size, NULL);
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_int_equal(code, MC_OK);
    assert_int_equal(size, 5);
    assert_string_equal(data, "hello");
    free(data);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_writer *w;
    assert_int_equal(os_writer_create("/dev/full", &w, &err), MC_OK);
    assert_int_equal(os_writer_write(w, "x", 1, &err), MC_OK); /* buffered */
    assert_int_equal(os_writer_finish(w, &err), MC_EIO);
    assert_int_equal(err.os_code, ENOSPC);
    assert_non_null(strstr(err.msg, "/dev/full"));
    assert_true(os_file_exists("/dev/full")); /* abort removes files, not devices */
}

static void expect_text(const char *path, const char *want)
{
    char *data;
    size_t size;
    assert_int_equal(os_file_read_all(path, 1000, &data, &size, NULL), MC_OK);
    assert_string_equal(data, want);
    free(data);
}

static void write_text(const char *path, const char *text)
{
    struct mc_err err;
    struct os_writer *w;
    if (os_writer_create(path, &w, &err) || os_writer_write(w, text, strlen(text), &err) || os_writer_finish(w, &err))
        fail_msg("%s", err.msg);
}

static void a_link_stays_and_its_target_is_replaced(void **state)
{
    (void)state;
    static const char folder[] = "test_os_linux-links.tmp", a[] = "test_os_linux-links.tmp/a",
                      b[] = "test_os_linux-links.tmp/b", target[] = "test_os_linux-links.tmp/target";
    struct stat st;
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(symlink("b", a), 0);
    assert_int_equal(symlink("target", b), 0);
    write_text(a, "one"); /* leads to nothing yet */
    expect_text(target, "one");
    assert_int_equal(chmod(target, 0640), 0);
    write_text(a, "two");
    expect_text(target, "two");
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_true(os_file_same(a, target));
    assert_int_equal(lstat(a, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(b, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unlink(target);
    unlink(b);
    assert_int_equal(symlink("a", b), 0);
    struct mc_err err;
    struct os_writer *w;
    assert_int_equal(os_writer_create(a, &w, &err), MC_EIO);
    assert_int_equal(err.os_code, ELOOP);
    unlink(a);
    unlink(b);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
}

static void pipes_and_standard_output_are_written_directly(void **state)
{
    (void)state;
    static const char fifo[] = "test_os_linux-fifo.tmp", file[] = "test_os_linux-stdout.tmp";
    char got[8] = {0};
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const int fd = open(fifo, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    write_text(fifo, "hello");
    assert_int_equal(read(fd, got, sizeof got), 5);
    assert_string_equal(got, "hello");
    close(fd);
    unlink(fifo);
    /* a file behind standard output: what others print there stays, in order */
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO), out = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    close(out);
    const bool printed = write(STDOUT_FILENO, "1 ", 2) == 2;
    write_text("/dev/stdout", "2 ");
    write_text(file, "3 ");
    const bool printed_again = write(STDOUT_FILENO, "4", 1) == 1;
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_true(printed && printed_again);
    expect_text(file, "1 2 3 4");
    unlink(file);
}

/* Runs fn in a child; returns its wait status. The map tests need it also because cmocka puts its own SIGBUS handler in place
 * for each test, while ours is installed once a process. */
static int in_child(void (*fn)(void))
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fn();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* For children: the first check that fails is told by its line, and the child's exit is 1. */
#define CHECK(x)                                                                                                               \
    do {                                                                                                                       \
        if (!(x)) {                                                                                                            \
            dprintf(STDERR_FILENO, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                                     \
            _exit(1);                                                                                                          \
        }                                                                                                                      \
    } while (0)

static struct os_map *map_of(const char *path, struct os_file **f)
{
    struct os_map *m = NULL;
    CHECK(os_file_open(path, f, NULL) == MC_OK);
    CHECK(os_map_open(*f, &m, NULL) == MC_OK);
    return m;
}

static void write_without_the_right(void)
{
    struct mc_err err;
    struct os_writer *w;
    if (geteuid() == 0) CHECK(setresuid(65534, 65534, 65534) == 0);
    CHECK(os_writer_create("test_os_linux-rights.tmp/locked", &w, &err) == MC_EIO);
    CHECK(strstr(err.msg, "test_os_linux-rights.tmp/locked") && err.os_code == EACCES);
    CHECK(chdir("test_os_linux-rights.tmp/closed") == 0);
    CHECK(os_writer_create("file", &w, &err) == MC_EIO);
    CHECK(strstr(err.msg, "file.part") && err.os_code == EACCES);
}

static void rights_are_asked_before_anything_is_done(void **state)
{
    (void)state;
    static const char folder[] = "test_os_linux-rights.tmp", locked[] = "test_os_linux-rights.tmp/locked",
                      closed[] = "test_os_linux-rights.tmp/closed", file[] = "test_os_linux-rights.tmp/closed/file";
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    put_file(locked, "old", 3);
    assert_int_equal(mkdir(closed, 0755), 0);
    put_file(file, "old", 3);
    assert_int_equal(chmod(file, 0666), 0);
    assert_int_equal(chmod(locked, 0444), 0);
    assert_int_equal(chmod(closed, 0555), 0);
    assert_int_equal(in_child(write_without_the_right), 0);
    expect_text(locked, "old");
    expect_text(file, "old");
    assert_int_equal(chmod(closed, 0755), 0);
    unlink(file);
    unlink(locked);
    assert_int_equal(rmdir(closed), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void die_while_writing(void)
{
    static const char big[200000];
    struct os_writer *w;
    CHECK(os_writer_create("test_os_linux-killed.tmp", &w, NULL) == MC_OK);
    CHECK(os_writer_write(w, big, sizeof big, NULL) == MC_OK);
    raise(SIGKILL);
}

static void a_killed_writer_leaves_the_older_file(void **state)
{
    (void)state;
    static const char path[] = "test_os_linux-killed.tmp";
    put_file(path, "old", 3);
    const int status = in_child(die_while_writing);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_text(path, "old");
    unlink("test_os_linux-killed.tmp.part");
    unlink(path);
}

/* Three pages; cut to one byte, then to nothing. */
static void cut_a_file(void)
{
    static const char path[] = "test_os_linux-cut.tmp", other[] = "test_os_linux-whole.tmp";
    static uint8_t bytes[3 * 4096];
    struct os_file *f, *g;
    memset(bytes, 0x5a, sizeof bytes);
    put_file(path, bytes, sizeof bytes);
    put_file(other, bytes, sizeof bytes);
    struct os_map *m = map_of(path, &f), *const whole = map_of(other, &g);
    const volatile uint8_t *const p = os_map_bytes(m).data;
    CHECK(p[sizeof bytes - 1] == 0x5a);
    CHECK(truncate(path, 1) == 0);
    CHECK(p[0] == 0x5a);
    CHECK(!os_map_damaged(m));
    CHECK(p[2 * 4096 + 77] == 0);
    CHECK(os_map_damaged(m));
    CHECK(p[4096] == 0);
    CHECK(p[sizeof bytes + 63] == 0);
    CHECK(truncate(path, 0) == 0);
    CHECK(p[0] == 0);
    CHECK(!os_map_damaged(whole));
    CHECK(os_map_bytes(whole).data[4096] == 0x5a);
    uint8_t b;
    CHECK(os_file_read_at(f, 0, &b, 1, NULL) == MC_EIO);
    os_map_close(m);
    os_map_close(whole);
    os_file_close(f);
    os_file_close(g);
    m = map_of(other, &g); /* the slot of a damaged map is clean for the next one */
    CHECK(!os_map_damaged(m));
    os_map_close(m);
    os_file_close(g);
}

static void a_cut_file_reads_as_zeros(void **state)
{
    (void)state;
    assert_int_equal(in_child(cut_a_file), 0);
    unlink("test_os_linux-cut.tmp");
    unlink("test_os_linux-whole.tmp");
}

static void *read_everywhere(void *arg)
{
    const struct mc_span *const s = arg;
    uintptr_t sum = 0;
    for (size_t i = 0; i < s->size; i += 512) sum += *(const volatile uint8_t *)(s->data + i);
    return (void *)sum;
}

/* Several threads fall into the same hole at once. */
static void fall_together(void)
{
    static const char path[] = "test_os_linux-many.tmp";
    enum { THREADS = 4, SIZE = 1 << 20 };
    struct os_file *f;
    put_file(path, "x", 1);
    CHECK(truncate(path, SIZE) == 0);
    struct os_map *const m = map_of(path, &f);
    CHECK(truncate(path, 0) == 0);
    struct mc_span s = os_map_bytes(m);
    CHECK(s.size == SIZE);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, read_everywhere, &s) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *sum;
        pthread_join(thread[i], &sum);
        CHECK(sum == NULL);
    }
    CHECK(os_map_damaged(m));
    os_map_close(m);
    os_file_close(f);
}

static void many_threads_survive_a_cut_file(void **state)
{
    (void)state;
    assert_int_equal(in_child(fall_together), 0);
    unlink("test_os_linux-many.tmp");
}

/* More maps than the table has room for: refused with a sentence, and room again after a close. */
static void open_too_many(void)
{
    static struct os_map *maps[5000];
    static const char path[] = "test_os_linux-table.tmp";
    struct os_file *f;
    struct mc_err err;
    size_t n = 0;
    put_file(path, "x", 1);
    CHECK(os_file_open(path, &f, NULL) == MC_OK);
    while (n < ARRAY_LEN(maps) && os_map_open(f, &maps[n], &err) == MC_OK) n++;
    CHECK(n >= 1000 && n < ARRAY_LEN(maps));
    CHECK(err.code == MC_ENOMEM && strstr(err.msg, path));
    os_map_close(maps[17]);
    CHECK(os_map_open(f, &maps[17], &err) == MC_OK);
    while (n > 0) os_map_close(maps[--n]);
    os_file_close(f);
}

static void the_table_of_maps_has_an_end(void **state)
{
    (void)state;
    assert_int_equal(in_child(open_too_many), 0);
    unlink("test_os_linux-table.tmp");
}

static void touch_foreign_hole(void)
{
    const int fd = open("test_os_linux-foreign.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) _exit(1);
    const volatile uint8_t *const p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || ftruncate(fd, 0)) _exit(2);
    (void)p[0];
}

static void exit_with_42(int sig)
{
    (void)sig;
    _exit(42);
}

static void open_some_map(void)
{
    struct os_file *f;
    struct os_map *m;
    put_file("test_os_linux-some.tmp", "x", 1);
    if (os_file_open("test_os_linux-some.tmp", &f, NULL) || os_map_open(f, &m, NULL)) _exit(3);
}

static void foreign_fault_with_handler(void)
{
    signal(SIGBUS, exit_with_42);
    open_some_map();
    touch_foreign_hole();
}

static void foreign_fault_without_handler(void)
{
    signal(SIGBUS, SIG_DFL);
    open_some_map();
    touch_foreign_hole();
}

static void foreign_faults_go_where_they_went(void **state)
{
    (void)state;
    const int with = in_child(foreign_fault_with_handler);
    assert_true(WIFEXITED(with));
    assert_int_equal(WEXITSTATUS(with), 42);
    const int without = in_child(foreign_fault_without_handler);
    assert_true(WIFSIGNALED(without));
    assert_int_equal(WTERMSIG(without), SIGBUS);
    unlink("test_os_linux-foreign.tmp");
    unlink("test_os_linux-some.tmp");
}

static void interrupt_once(void)
{
    os_interrupt_catch();
    if (os_interrupted()) _exit(1);
    raise(SIGINT);
    _exit(os_interrupted() ? 7 : 2);
}

static void interrupt_twice(void)
{
    os_interrupt_catch();
    raise(SIGINT);
    raise(SIGINT);
}

/* With the first Ctrl-C a read from a silent terminal or pipe ends. */
static void interrupt_a_read(void)
{
    int ends[2];
    char *data;
    size_t size;
    if (pipe(ends)) _exit(1);
    dup2(ends[0], STDIN_FILENO);
    os_interrupt_catch();
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        usleep(100 * 1000);
        kill(parent, SIGINT);
        _exit(0);
    }
    const enum mc_code code = os_file_read_all("-", 100, &data, &size, NULL);
    waitpid(pid, NULL, 0);
    _exit(code == MC_ECANCELLED ? 7 : 2);
}

static void write_to_nobody(void)
{
    int ends[2];
    os_console_setup();
    if (pipe(ends)) _exit(1);
    close(ends[0]);
    _exit(write(ends[1], "x", 1) < 0 && errno == EPIPE ? 7 : 2);
}

static void signals_do_what_they_should(void **state)
{
    (void)state;
    assert_int_equal(WEXITSTATUS(in_child(interrupt_once)), 7);
    assert_int_equal(WEXITSTATUS(in_child(interrupt_twice)), 130);
    assert_int_equal(WEXITSTATUS(in_child(interrupt_a_read)), 7);
    assert_int_equal(WEXITSTATUS(in_child(write_to_nobody)), 7);
}

/* ---- control groups under a false root ---------------------------------------------------------------------------- */

static void put_text(const char *path, const char *text)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = folder; *p; p++)
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(folder, 0755);
            *p = '/';
        }
    put_file(path, text, strlen(text));
}

#define ROOT "test_os_linux-root.tmp"

static void clear_root(void)
{
    assert_int_equal(system("rm -rf " ROOT), 0);
}

static void a_v2_limit_counts_on_every_level(void **state)
{
    (void)state;
    clear_root();
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    put_text(ROOT "/proc/self/cgroup", "0::/outer/inner\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    put_text(ROOT "/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    put_text(ROOT "/sys/fs/cgroup/outer/memory.max", "1000000\n");
    put_text(ROOT "/sys/fs/cgroup/outer/memory.current", "300000\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), 700000);
    put_text(ROOT "/sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 60000\nactive_file 40000\nfile 5\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), 800000);
    put_text(ROOT "/sys/fs/cgroup/outer/inner/memory.max", "500000\n");
    put_text(ROOT "/sys/fs/cgroup/outer/inner/memory.current", "500001\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), 0);
    clear_root();
}

static void a_v1_limit_is_found_in_a_container(void **state)
{
    (void)state;
    clear_root();
    put_text(ROOT "/proc/self/cgroup", "3:cpu,cpuacct:/a\n4:memory:/docker/0123\n0::/\n");
    put_text(ROOT "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    put_text(ROOT "/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n"); /* the path itself is the host's, not here */
    put_text(ROOT "/sys/fs/cgroup/memory/memory.usage_in_bytes", "96000\n");
    put_text(ROOT "/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 6000\ntotal_active_file 0\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), 4006000);
    put_text(ROOT "/proc/self/cgroup", "4:memoryless,cpu:/\n");
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    put_text(ROOT "/proc/self/cgroup", "nonsense\n:\n\n4:cpu,memory");
    assert_int_equal(linux_cgroup_memory_available(ROOT), UINT64_MAX);
    clear_root();
}

static void cpu_quotas_of_both_versions_count(void **state)
{
    (void)state;
    clear_root();
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), UINT64_MAX);
    put_text(ROOT "/proc/self/cgroup", "0::/a/b\n");
    put_text(ROOT "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), UINT64_MAX);
    put_text(ROOT "/sys/fs/cgroup/a/cpu.max", "765000 100000\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 7650);
    put_text(ROOT "/sys/fs/cgroup/a/b/cpu.max", "1 1000000\n"); /* the least of all levels, and never nothing */
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 1);
    put_text(ROOT "/sys/fs/cgroup/a/b/cpu.max", "50000\n"); /* no period: no quota */
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 7650);
    clear_root();
    put_text(ROOT "/proc/self/cgroup", "3:cpu,cpuacct:/docker/0123\n4:cpuset:/\n0::/\n");
    put_text(ROOT "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put_text(ROOT "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), UINT64_MAX);
    put_text(ROOT "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "125000\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 2500);
    put_text(ROOT "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    put_text(ROOT "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 1000);
    put_text(ROOT "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
    assert_int_equal(linux_cgroup_cpu_milli(ROOT), 2500);
    clear_root();
}

static void numbers_are_found_in_lines(void **state)
{
    (void)state;
    uint64_t v = 0;
    assert_true(linux_find_number("MemTotal: 5 kB\nMemAvailable:   123 kB\n", "MemAvailable:", &v));
    assert_int_equal(v, 123);
    assert_true(linux_find_number("a 1\nab 2", "ab", &v));
    assert_int_equal(v, 2);
    assert_false(linux_find_number("abc 2\n", "ab", &v));
    assert_false(linux_find_number("ab \n", "ab", &v));
    assert_false(linux_find_number("", "ab", &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_faults_go_where_they_went),
        cmocka_unit_test(signals_do_what_they_should),
        cmocka_unit_test(pipes_and_devices_are_refused_at_once),
        cmocka_unit_test(standard_input_can_be_a_pipe),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(a_link_stays_and_its_target_is_replaced),
        cmocka_unit_test(pipes_and_standard_output_are_written_directly),
        cmocka_unit_test(rights_are_asked_before_anything_is_done),
        cmocka_unit_test(a_killed_writer_leaves_the_older_file),
        cmocka_unit_test(a_cut_file_reads_as_zeros),
        cmocka_unit_test(many_threads_survive_a_cut_file),
        cmocka_unit_test(the_table_of_maps_has_an_end),
        cmocka_unit_test(a_v2_limit_counts_on_every_level),
        cmocka_unit_test(a_v1_limit_is_found_in_a_container),
        cmocka_unit_test(cpu_quotas_of_both_versions_count),
        cmocka_unit_test(numbers_are_found_in_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("skipped: pipes as files, SIGBUS, SIGINT and control groups are things of Linux");
    return 0;
}

#endif
