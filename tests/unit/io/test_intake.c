/* test_intake.c - tensors on their way into memory: every way gives the bytes of the file, a bad disk gives one line.
 *
 * Method: a file of random bytes as one tensor that begins and ends inside a page, cut into odd ranges; a disk that answers
 * with short reads, interruptions, errors and early ends is put between the system and the stream. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "tests/unit/io/gguf_image.h"

#include "io/weights/intake.h"
#include "platform/os.h"

#include <stdatomic.h>

#ifdef __linux__
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

enum { TENSOR_BYTES = 1000032, BLOCK = 70000, LANES = 2, SLOTS = 3 };
static const char path[] = "test_intake.gguf";

static void make_file(void)
{
    struct image m = {0};
    img_header(&m, 1, 0);
    img_tensor(&m, "t", QUANT_F32, TENSOR_BYTES / 4, 0, 0);
    img_pad(&m, 32);
    uint32_t x = 1;
    for (size_t i = 0; i < TENSOR_BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        img_fill(&m, (uint8_t)(x >> 24), 1);
    }
    img_save(&m, path);
    img_free(&m);
}

/* The tensor through an intake, in ranges of changing size; into out directly every third time. */
static enum mc_code read_all(struct intake *in, const struct gguf_tensor *t, uint8_t *out, struct mc_err *err)
{
    const size_t shift = (size_t)(t->file_off % OS_READ_ALIGN);
    uint64_t at = 0;
    for (unsigned turn = 0; at < TENSOR_BYTES; turn++) {
        uint64_t from[SLOTS];
        size_t size[SLOTS];
        unsigned n = 0;
        for (; n < SLOTS && at < TENSOR_BYTES; n++) {
            from[n] = at;
            size[n] =
                turn % 3 == 2 ? 8 * OS_READ_ALIGN - (size_t)((t->file_off + at) % OS_READ_ALIGN) : BLOCK - 997 * (turn % 5);
            if (size[n] > TENSOR_BYTES - at) size[n] = (size_t)(TENSOR_BYTES - at);
            /* direct ranges overwrite the units around them: let those lie in the range, or be written later */
            const bool direct =
                turn % 3 == 2 && (t->file_off + at) % OS_READ_ALIGN == 0 && (t->file_off + at + size[n]) % OS_READ_ALIGN == 0;
            const struct intake_range r = {0, at, size[n], direct ? out + shift + at : NULL};
            assert_int_equal(intake_start(in, turn % LANES, n, &r, err), MC_OK);
            at += size[n];
        }
        enum mc_code code = MC_OK;
        for (unsigned i = 0; i < n; i++) {
            const uint8_t *bytes;
            const enum mc_code c = intake_finish(in, turn % LANES, i, &bytes, code ? NULL : err);
            if (!code) code = c;
            if (!c && bytes != out + shift + from[i]) memcpy(out + shift + from[i], bytes, size[i]);
        }
        if (code) return code;
    }
    return MC_OK;
}

struct disk {
    enum { GOOD, SHORT, STUTTER, BROKEN, CUT, DEAD } kind;
    uint64_t at; /* of trouble */
    atomic_uint calls;
};

static int64_t answer(void *user, uint64_t off, int64_t result)
{
    struct disk *d = user;
    const unsigned call = atomic_fetch_add(&d->calls, 1);
    switch (d->kind) {
    case SHORT:
        return result > 2 * OS_READ_ALIGN ? result / 2 + 100 : result;
    case STUTTER:
        return call % 3 ? result : -4; /* EINTR, ERROR_TOO_MANY_OPEN_FILES: told apart below */
    case BROKEN:
        return off + 70000 > d->at ? -5 : result;
    case CUT:
        return off >= d->at ? 0 : result > (int64_t)(d->at - off) ? (int64_t)(d->at - off) : result;
    case DEAD:
        return -11;
    default:
        return result;
    }
}

/* Opens and reads by `io` with a disk (or NULL); the bytes are compared when it went well. */
static enum mc_code attempt(enum weights_io io, struct disk *disk, struct intake_facts *facts, struct mc_err *err)
{
    struct gguf *g = NULL;
    struct weights *w = NULL;
    struct intake *in = NULL;
    const struct stream_fault fault = {answer, disk};
    const struct intake_options opt = {io, LANES, SLOTS, BLOCK, disk ? &fault : NULL};
    assert_int_equal(gguf_open(path, &g, err), MC_OK);
    assert_int_equal(weights_open(g, &w, err), MC_OK);
    enum mc_code code = intake_open(g, w, &opt, &in, err);
    if (!code) {
        void *out = NULL;
        intake_facts_get(in, facts);
        assert_int_equal(os_mem_alloc(TENSOR_BYTES + 2 * OS_READ_ALIGN, OS_MEM_PLAIN, "test", &out, NULL), MC_OK);
        const struct gguf_tensor *t = gguf_tensor_at(g, 0);
        code = read_all(in, t, out, err);
        if (!code) assert_memory_equal((uint8_t *)out + t->file_off % OS_READ_ALIGN, weights_tensor(w, 0), TENSOR_BYTES);
        os_mem_free(out, TENSOR_BYTES + 2 * OS_READ_ALIGN);
        intake_close(in);
    }
    weights_close(w);
    gguf_close(g);
    return code;
}

static const enum weights_io ways[] = {WEIGHTS_AUTO, WEIGHTS_MMAP, WEIGHTS_URING, WEIGHTS_PREAD};

/* Is this way there at all? A ring may be forbidden: that is one line. */
static bool there_is(enum weights_io io)
{
    struct intake_facts f;
    struct mc_err err;
    const enum mc_code code = attempt(io, NULL, &f, &err);
    if (code == MC_OK) return true;
    assert_int_equal(io, WEIGHTS_URING);
    assert_int_equal(code, MC_EUNSUPPORTED);
    assert_says(&err, "--io uring: ");
    printf("skipped: %s\n", err.msg);
    return false;
}

static void every_way_gives_the_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct intake_facts f = {0};
        struct mc_err err = {0};
        if (!there_is(ways[i])) continue;
        assert_int_equal(attempt(ways[i], NULL, &f, &err), MC_OK);
        if (ways[i] != WEIGHTS_AUTO) assert_int_equal(f.io, ways[i]);
        assert_int_not_equal(f.io, WEIGHTS_AUTO);
        printf("%s: %s %s, %s\n", weights_io_name(ways[i]), weights_io_name(f.io), f.direct ? "direct" : "through the cache",
               f.why);
    }
}

#ifdef __linux__
/* From now on io_uring's three calls answer with `error`, as under the filters of containers. */
static bool forbid_rings(unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 425, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 427, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_LEN(code), code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Exit codes: 0 well, 9 filters cannot be set, else where it went wrong. */
static int read_without_rings(unsigned error)
{
    struct intake_facts f = {0};
    struct mc_err err = {0};
    if (!forbid_rings(error)) return 9;
    if (attempt(WEIGHTS_AUTO, NULL, &f, &err)) return 1;
    if (f.io != WEIGHTS_PREAD || !strstr(f.why, "io_uring")) return 2;
    if (attempt(WEIGHTS_URING, NULL, &f, &err) != MC_EUNSUPPORTED) return 3;
    return strstr(err.msg, "--io uring: ") && strstr(err.msg, "pread") ? 0 : 4;
}

static void without_rings_threads_read(void **state)
{
    (void)state;
    static const unsigned errors[] = {ENOSYS, EPERM, ENOMEM};
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        int status;
        fflush(stdout);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) _exit(read_without_rings(errors[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 9)
            printf("skipped: system calls cannot be filtered here\n");
        else
            assert_int_equal(WEXITSTATUS(status), 0);
    }
}
#endif

static void short_reads_are_continued(void **state)
{
    (void)state;
    for (size_t i = 2; i < ARRAY_LEN(ways); i++) {
        struct disk disk = {.kind = SHORT};
        struct intake_facts f;
        struct mc_err err;
        if (!there_is(ways[i])) continue;
        assert_int_equal(attempt(ways[i], &disk, &f, &err), MC_OK);
        assert_true(atomic_load(&disk.calls) > TENSOR_BYTES / BLOCK * 2);
    }
}

static void interruptions_are_repeated(void **state)
{
    (void)state;
    if (!os_read_again(-4)) return; /* not a system where 4 is an interruption */
    for (size_t i = 2; i < ARRAY_LEN(ways); i++) {
        struct disk disk = {.kind = STUTTER}, dead = {.kind = DEAD};
        struct intake_facts f;
        struct mc_err err;
        if (!there_is(ways[i])) continue;
        assert_int_equal(attempt(ways[i], &disk, &f, &err), MC_OK);
        assert_int_equal(attempt(ways[i], &dead, &f, &err), MC_EIO); /* not for ever */
        assert_says(&err, path);
    }
}

static void errors_and_early_ends_are_one_line(void **state)
{
    (void)state;
    for (size_t i = 2; i < ARRAY_LEN(ways); i++)
        for (uint64_t at = 1; at < TENSOR_BYTES; at += 330000) {
            struct disk broken = {.kind = BROKEN, .at = at}, cut = {.kind = CUT, .at = at};
            struct intake_facts f;
            struct mc_err err;
            if (!there_is(ways[i])) continue;
            assert_int_equal(attempt(ways[i], &broken, &f, &err), MC_EIO);
            assert_says(&err, path);
            assert_int_equal(err.os_code, 5);
            assert_int_equal(attempt(ways[i], &cut, &f, &err), MC_EIO);
            assert_says(&err, "bytes when it was opened");
        }
}

static void a_measurement_is_a_rate(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct weights *w = NULL;
    struct intake *in = NULL;
    struct mc_err err;
    double gb_s = -1;
    assert_int_equal(gguf_open(path, &g, &err), MC_OK);
    assert_int_equal(weights_open(g, &w, &err), MC_OK);
    const struct intake_options opt = {WEIGHTS_PREAD, LANES, SLOTS, BLOCK, NULL};
    assert_int_equal(intake_open(g, w, &opt, &in, &err), MC_OK);
    assert_int_equal(intake_measure(in, TENSOR_BYTES / 2, &gb_s, &err), MC_OK);
    assert_true(gb_s > 0);
    intake_close(in);
    intake_close(NULL);
    weights_close(w);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef __linux__
        cmocka_unit_test(without_rings_threads_read),
#endif
        cmocka_unit_test(every_way_gives_the_bytes),  cmocka_unit_test(short_reads_are_continued),
        cmocka_unit_test(interruptions_are_repeated), cmocka_unit_test(errors_and_early_ends_are_one_line),
        cmocka_unit_test(a_measurement_is_a_rate),
    };
    make_file();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
