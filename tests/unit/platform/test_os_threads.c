/* test_os_threads.c - memory, threads, waiting, CPUs and the clock, on every system.
 *
 * Goal: what os.h promises about each of them. Method: the real calls; nothing asserts a speed. */
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

enum { MIB = 1024 * 1024 };

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, 4097, 2 * MIB - 1, 2 * MIB, 5 * MIB + 12345};
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (int huge = 0; huge < 2; huge++) {
            struct mc_err err;
            void *p = NULL;
            assert_int_equal(os_mem_alloc(sizes[k], huge ? OS_MEM_HUGE : OS_MEM_PLAIN, "test memory", &p, &err), MC_OK);
            assert_int_equal((uintptr_t)p % (huge && sizes[k] >= 2 * MIB ? 2 * MIB : 4096), 0);
            uint8_t *const b = p;
            for (size_t i = 0; i < sizes[k]; i++) assert_int_equal(b[i], 0);
            memset(b, 0xa5, sizes[k]);
            os_mem_free(p, sizes[k]);
        }
}

static void no_bytes_are_no_memory(void **state)
{
    (void)state;
    void *p = &state;
    assert_int_equal(os_mem_alloc(0, OS_MEM_HUGE, "nothing", &p, NULL), MC_OK);
    assert_null(p);
    os_mem_free(NULL, 0);
}

static void too_much_memory_is_an_error_with_its_label(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2 + 1, (size_t)1 << 60};
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        struct mc_err err;
        void *p;
        assert_int_equal(os_mem_alloc(sizes[k], OS_MEM_HUGE, "expert cache", &p, &err), MC_ENOMEM);
        assert_non_null(strstr(err.msg, "expert cache"));
    }
}

static void the_process_knows_its_memory(void **state)
{
    (void)state;
    struct os_caps caps;
    os_caps_get(&caps);
    assert_int_equal(caps.page_bytes, 4096);
    assert_true(caps.map_granularity_bytes >= caps.page_bytes);
    assert_true(os_memory_available_bytes() > 0);
    struct os_system system;
    os_system_get(&system);
    assert_true(system.memory_bytes >= system.machine_free_bytes && system.machine_free_bytes > 0);
    assert_true(os_memory_available_bytes() <= system.memory_bytes);
    assert_true(system.open_files_limit > 8 && system.locked_limit_bytes > 0);
    for (unsigned i = 0; i < 2; i++) assert_true(system.pool_free_bytes[i] <= system.pool_bytes[i]);
    const uint64_t before = os_rss_peak_bytes();
    assert_true(before > 0);
    void *p;
    assert_int_equal(os_mem_alloc(64 * MIB, OS_MEM_PLAIN, "test memory", &p, NULL), MC_OK);
    memset(p, 1, 64 * MIB);
    assert_true(os_rss_peak_bytes() >= 60u * MIB);
    os_mem_free(p, 64 * MIB);
}

static void the_clock_goes_forward(void **state)
{
    (void)state;
    const uint64_t start = os_clock_ns();
    uint64_t last = start;
    for (int i = 0; i < 1000; i++) {
        const uint64_t now = os_clock_ns();
        assert_true(now >= last);
        last = now;
    }
    while (os_clock_ns() == start) os_cpu_relax();
}

/* Two threads throw a number back and forth; each sleeps on it while it is the other's turn. */
enum { THROWS = 2000 };

struct table_tennis {
    _Atomic uint32_t ball;
    uint32_t sum; /* written by whoever has the ball */
};

static void play(struct table_tennis *t, uint32_t parity)
{
    for (;;) {
        const uint32_t ball = atomic_load_explicit(&t->ball, memory_order_acquire);
        if (ball >= THROWS) return;
        if (ball % 2 != parity) {
            os_wait_u32(&t->ball, ball);
            continue;
        }
        t->sum += ball;
        atomic_store_explicit(&t->ball, ball + 1, memory_order_release);
        os_wake_all_u32(&t->ball);
    }
}

static void play_odd(void *arg)
{
    play(arg, 1);
}

static void threads_wait_and_wake(void **state)
{
    (void)state;
    struct table_tennis t = {0};
    struct os_thread *thread;
    struct mc_err err;
    assert_int_equal(os_thread_start(play_odd, &t, "a name that is too long", &thread, &err), MC_OK);
    play(&t, 0);
    os_thread_join(thread);
    os_thread_join(NULL);
    assert_int_equal(t.sum, (uint32_t)THROWS * (THROWS - 1) / 2);
}

static void waiting_for_another_value_returns(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    os_wait_u32(&word, 6);
    os_wake_all_u32(&word);
}

static void bind_to_each(void *arg)
{
    unsigned cpus[1024], *failures = arg;
    const size_t n = os_cpus_allowed(cpus, ARRAY_LEN(cpus));
    struct os_affinity before;
    os_thread_affinity_get(&before);
    for (size_t i = 0; i < n; i++) *failures += os_thread_bind(cpus[i], NULL) != MC_OK;
    os_thread_affinity_set(&before);
    struct os_affinity after;
    os_thread_affinity_get(&after);
    *failures += memcmp(&before, &after, sizeof after) != 0;
}

static void a_thread_can_be_bound_and_freed(void **state)
{
    (void)state;
    unsigned cpus[1024], failures = 0;
    const size_t n = os_cpus_allowed(cpus, ARRAY_LEN(cpus));
    assert_true(n >= 1);
    for (size_t i = 1; i < n; i++) assert_true(cpus[i - 1] < cpus[i]);
    assert_int_equal(os_cpus_allowed(cpus, 1), 1);
    struct os_thread *thread;
    assert_int_equal(os_thread_start(bind_to_each, &failures, "binder", &thread, NULL), MC_OK);
    os_thread_join(thread);
    assert_int_equal(failures, 0);
    struct mc_err err;
    assert_int_not_equal(os_thread_bind(8191, &err), MC_OK);
    assert_non_null(strstr(err.msg, "8191"));
    assert_int_equal(os_thread_bind(1u << 31, &err), MC_EARG);
}

static void the_program_knows_its_folder(void **state)
{
    (void)state;
    char buf[4096], tiny[2];
    struct mc_err err;
    assert_int_equal(os_program_dir(buf, sizeof buf, &err), MC_OK);
    assert_true(os_file_exists(buf));
    assert_true(buf[strlen(buf) - 1] != '/' && buf[strlen(buf) - 1] != '\\');
    assert_int_equal(os_program_dir(tiny, sizeof tiny, &err), MC_EARG);
}

static void the_environment_is_read(void **state)
{
    (void)state;
    char buf[8192], tiny[1];
    assert_false(os_env_get("MC_TEST_NO_SUCH_VARIABLE", buf, sizeof buf));
    assert_string_equal(buf, "");
    assert_true(os_env_get("PATH", buf, sizeof buf));
    assert_true(strlen(buf) > 0);
    assert_false(os_env_get("PATH", tiny, sizeof tiny));
    assert_string_equal(tiny, "");
}

static void nothing_is_interrupted_yet(void **state)
{
    (void)state;
    os_console_setup();
    os_interrupt_catch();
    assert_false(os_interrupted());
}

int main(int argc, char **argv)
{
    const int n_before = argc;
    os_args_utf8(&argc, &argv);
    if (argc != n_before || !argv[0] || argv[argc]) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(no_bytes_are_no_memory),
        cmocka_unit_test(too_much_memory_is_an_error_with_its_label),
        cmocka_unit_test(the_process_knows_its_memory),
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(threads_wait_and_wake),
        cmocka_unit_test(waiting_for_another_value_returns),
        cmocka_unit_test(a_thread_can_be_bound_and_freed),
        cmocka_unit_test(the_program_knows_its_folder),
        cmocka_unit_test(the_environment_is_read),
        cmocka_unit_test(nothing_is_interrupted_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
