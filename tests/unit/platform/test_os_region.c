/* test_os_region.c - large memory of chosen pages.
 *
 * Goal: every wish gives zeroed memory or one line that names the remedy, whatever pools and limits there are; nothing is ever
 * killed. Method: the pools as they are; where the test may (root), a small pool of 2 MiB pages is set up for a moment under a
 * lock; what changes a process runs in a child. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static uint64_t sum_of(const struct os_region_facts *f)
{
    uint64_t sum = 0;
    for (int k = 0; k < OS_PAGE_KINDS; k++) sum += f->bytes[k];
    return sum;
}

/* Creates, touches in two overlapping halves, writes and reads; false when the wish was refused with a line. */
static bool use_region(size_t size, enum os_hugepages wish, struct os_region_facts *facts, struct mc_err *err)
{
    struct os_region *r = NULL;
    const enum mc_code code = os_region_create(size, wish, "test weights", &r, err);
    if (code) {
        assert_null(r);
        assert_true(code == MC_ENOMEM || code == MC_EUNSUPPORTED);
        assert_non_null(strstr(err->msg, "--hugepages auto"));
        return false;
    }
    assert_int_equal(os_region_size(r), size);
    uint8_t *const data = os_region_data(r);
    assert_int_equal((uintptr_t)data % (size >= 2 * MIB ? 2 * MIB : 4096), 0);
    os_region_facts_get(r, facts);
    if (os_region_touch(r, 0, size / 2 + 1, err) || os_region_touch(r, size / 2, size - size / 2, err)) {
        os_region_destroy(r);
        return false;
    }
    os_region_facts_get(r, facts);
    assert_true(sum_of(facts) >= size && sum_of(facts) < size + 2 * MIB);
    for (size_t i = 0; i < size; i += 1000) assert_int_equal(data[i], 0);
    memset(data, 7, size);
    assert_int_equal(data[size - 1], 7);
    os_region_destroy(r);
    return true;
}

static void every_wish_gives_memory_or_a_line(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, 5000, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 19 * MIB + 77};
    for (int wish = 0; wish < OS_HUGE_WISHES; wish++)
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            struct os_region_facts f;
            struct mc_err err = {0};
            const bool got = use_region(sizes[i], (enum os_hugepages)wish, &f, &err);
            if (wish == OS_HUGE_AUTO || wish == OS_HUGE_OFF) assert_true(got);
            if (!got) printf("wish %d, %zu bytes: %s\n", wish, sizes[i], err.msg);
            if (got && wish == OS_HUGE_OFF) {
                assert_int_equal(f.bytes[OS_PAGE_NORMAL], sum_of(&f));
                assert_string_equal(f.why, "");
            }
        }
    os_region_destroy(NULL);
    assert_string_equal(os_page_name(OS_PAGE_2M), "2m");
}

static void too_much_is_a_line(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_region *r = NULL;
    assert_int_equal(os_region_create(SIZE_MAX / 2, OS_HUGE_OFF, "test weights", &r, &err), MC_ENOMEM);
    assert_non_null(strstr(err.msg, "test weights"));
    assert_int_equal(os_region_create((size_t)1 << 60, OS_HUGE_AUTO, "test weights", &r, &err), MC_ENOMEM);
    assert_null(r);
}

struct toucher {
    struct os_region *r;
    unsigned id;
};

static void touch_all(void *arg)
{
    const struct toucher *t = arg;
    const size_t n = os_region_size(t->r);
    for (size_t off = 0; off < n; off += MIB) {
        if (os_region_touch(t->r, off, n - off < MIB ? n - off : MIB, NULL)) return;
        os_region_data(t->r)[off + t->id] = (uint8_t)(t->id + 1); /* lost if another thread's touch mapped it anew */
    }
}

static void threads_may_touch_the_same_part(void **state)
{
    (void)state;
    struct toucher t[4];
    struct os_thread *thread[4];
    struct os_region *r = NULL;
    assert_int_equal(os_region_create(37 * MIB, OS_HUGE_AUTO, "test weights", &r, NULL), MC_OK);
    for (unsigned i = 0; i < 4; i++) {
        t[i] = (struct toucher){r, i};
        assert_int_equal(os_thread_start(touch_all, &t[i], "toucher", &thread[i], NULL), MC_OK);
    }
    for (unsigned i = 0; i < 4; i++) os_thread_join(thread[i]);
    for (size_t off = 0; off < 37 * MIB; off += MIB)
        for (unsigned i = 0; i < 4; i++) assert_int_equal(os_region_data(r)[off + i], i + 1);
    os_region_destroy(r);
}

#ifdef __linux__
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char pool_path[] = "/proc/sys/vm/nr_hugepages";

static bool put_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok;
}

static unsigned long get_number(const char *path)
{
    char *text = NULL;
    size_t size;
    if (os_file_read_all(path, 4096, &text, &size, NULL)) return 0;
    const unsigned long n = strtoul(text, NULL, 10);
    free(text);
    return n;
}

/* Runs fn in a child; its exit code, or 1000 + the signal. */
static int in_child(int (*fn)(void))
{
    fflush(stdout);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(fn());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Exit codes of children: 0 memory, 3 refused by a line, else where it went wrong. */
static int auto_is_normal(void)
{
    struct os_region_facts f;
    struct mc_err err = {0};
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 10;
    if (!use_region(9 * MIB, OS_HUGE_AUTO, &f, &err)) return 11;
    if (f.bytes[OS_PAGE_THP]) return 12;
    if (f.bytes[OS_PAGE_NORMAL] && !strstr(f.why, "transparent huge pages")) return 13;
    return use_region(9 * MIB, OS_HUGE_THP, &f, &err) ? 14 : 3;
}

static void without_transparent_pages(void **state)
{
    (void)state;
    assert_int_equal(in_child(auto_is_normal), 3);
}

static int as_nobody(void)
{
    const struct rlimit little = {65536, 65536};
    struct os_region_facts f;
    struct mc_err err = {0};
    if (setrlimit(RLIMIT_MEMLOCK, &little)) return 10;
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) return 11;
    return use_region(9 * MIB, OS_HUGE_AUTO, &f, &err) ? 0 : 12;
}

static void an_ordinary_user_with_little_locked_memory(void **state)
{
    (void)state;
    assert_int_equal(in_child(as_nobody), 0);
}

static int pool_too_small(void)
{
    struct os_region_facts f;
    struct mc_err err = {0};
    if (!use_region(33 * MIB, OS_HUGE_AUTO, &f, &err)) return 10;
    if (f.bytes[OS_PAGE_2M] != 10 * MIB || !strstr(f.why, "vm.nr_hugepages=")) return 11;
    if (!use_region(9 * MIB, OS_HUGE_2M, &f, &err) || f.bytes[OS_PAGE_2M] != 10 * MIB) return 12;
    if (use_region(33 * MIB, OS_HUGE_2M, &f, &err)) return 13;
    return strstr(err.msg, "vm.nr_hugepages=17") ? 3 : 14;
}

static int pool_of_nothing(void)
{
    struct os_region_facts f;
    struct mc_err err = {0};
    if (!use_region(9 * MIB, OS_HUGE_AUTO, &f, &err) || f.bytes[OS_PAGE_2M]) return 10;
    return use_region(9 * MIB, OS_HUGE_2M, &f, &err) ? 11 : 3;
}

/* The group's limit lets a mapping succeed and its touch fail: a plain access would be killed. */
static const char group[] = "/sys/fs/cgroup/unified/modchip-test", group_plain[] = "/sys/fs/cgroup/modchip-test";
static char group_path[128];

static int touch_beyond_the_group(void)
{
    char text[160];
    struct os_region_facts f;
    struct mc_err err = {0};
    snprintf(text, sizeof text, "%s/cgroup.procs", group_path);
    if (!put_text(text, "0")) return 20;
    if (!use_region(9 * MIB, OS_HUGE_AUTO, &f, &err)) return 10;
    if (f.bytes[OS_PAGE_2M] > 4 * MIB || !strstr(f.why, "control group")) return 11;
    return use_region(9 * MIB, OS_HUGE_2M, &f, &err) ? 12 : strstr(err.msg, "control group") ? 3 : 13;
}

static bool make_group(const char *root, const char *path)
{
    char text[200];
    snprintf(text, sizeof text, "%s/cgroup.subtree_control", root);
    if (!put_text(text, "+hugetlb")) return false;
    if (mkdir(path, 0700)) return false;
    snprintf(group_path, sizeof group_path, "%s", path);
    snprintf(text, sizeof text, "%s/hugetlb.2MB.max", path);
    return put_text(text, "4194304");
}

static void pools_of_2_mib_pages(void **state)
{
    (void)state;
    char text[32];
    const int lock = open("/tmp/modchip-test-hugepages.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(lock >= 0);
    flock(lock, LOCK_EX);
    const unsigned long before = get_number(pool_path);
    int nothing = 3, small = 3, limited = 3;
    if (access(pool_path, W_OK) || before > 0) {
        printf("skipped: needs the right to set %s, and a pool that is not in use (it has %lu pages)\n", pool_path, before);
    } else {
        nothing = in_child(pool_of_nothing);
        const bool set = put_text(pool_path, "5") && get_number(pool_path) == 5;
        if (set)
            small = in_child(pool_too_small);
        else
            printf("skipped: the system has no memory for five pages\n");
        if (set && (make_group("/sys/fs/cgroup/unified", group) || make_group("/sys/fs/cgroup", group_plain)))
            limited = in_child(touch_beyond_the_group);
        else
            printf("skipped: no control group for hugetlb pages can be made\n");
        if (group_path[0]) rmdir(group_path);
        snprintf(text, sizeof text, "%lu", before);
        assert_true(put_text(pool_path, text));
    }
    close(lock);
    assert_int_equal(nothing, 3);
    assert_int_equal(small, 3);
    assert_int_equal(limited, 3);
}

/* 1 GiB pages come first where the pool has some (tests/emulated/run.sh boots a machine that does); elsewhere lesser pages take
 * their place, and insisting on them is refused. */
static void pages_of_1_gib(void **state)
{
    (void)state;
    static const char pool[] = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
    const bool there = access(pool, R_OK) == 0 && get_number(pool) > 0;
    const size_t gib = 1024 * MIB;
    struct os_region_facts f;
    struct mc_err err = {0};
    struct os_region *r = NULL;
    assert_int_equal(os_region_create(gib + 20 * MIB, OS_HUGE_AUTO, "test weights", &r, &err), MC_OK);
    const size_t off = there ? 0 : gib; /* touching a gigabyte is slow, and no news without such a page */
    assert_int_equal(os_region_touch(r, off, gib + 20 * MIB - off, &err), MC_OK);
    os_region_facts_get(r, &f);
    assert_int_equal(f.bytes[OS_PAGE_1G], there ? gib : 0);
    assert_true(sum_of(&f) - f.bytes[OS_PAGE_1G] >= 20 * MIB);
    for (size_t i = off; i < gib + 20 * MIB; i += 4096) assert_int_equal(os_region_data(r)[i]++, 0);
    os_region_destroy(r);
    printf("pages of 1 GiB: %s\n", there ? "used" : "none here");
    if (there) return;
    assert_int_not_equal(os_region_create(gib, OS_HUGE_1G, "test weights", &r, &err), MC_OK);
    assert_non_null(strstr(err.msg, "1 GiB"));
    assert_non_null(strstr(err.msg, "--hugepages auto"));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wish_gives_memory_or_a_line),
        cmocka_unit_test(too_much_is_a_line),
        cmocka_unit_test(threads_may_touch_the_same_part),
#ifdef __linux__
        cmocka_unit_test(without_transparent_pages),
        cmocka_unit_test(an_ordinary_user_with_little_locked_memory),
        cmocka_unit_test(pools_of_2_mib_pages),
        cmocka_unit_test(pages_of_1_gib),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
