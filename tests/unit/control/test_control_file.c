/* The 32-byte file: every content of cfg.json byte for byte, writers that are overheard in the middle, files that are not ours
 * in one of many ways, and what is done at the start and at the end. */
#include "platform/base/bytes.h"
#include "platform/base/json.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/control/control_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATH "test_moe_cfg.bin"

static const struct settings_limits flash = {43, 3, 6};
static struct settings_box *box;
static unsigned n_logged;
static char last_log[400];

static void keep_log(void *user, enum mc_log_level level, const char *line)
{
    (void)user, (void)level;
    n_logged++;
    snprintf(last_log, sizeof last_log, "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    struct mc_err err = {0};
    (void)remove(PATH);
    n_logged = 0;
    mc_log_set(keep_log, NULL, MC_LOG_WARN);
    return settings_box_create(&flash, &box, &err) != MC_OK;
}

static int tear_down(void **state)
{
    (void)state;
    settings_box_destroy(box);
    (void)remove(PATH);
    return 0;
}

static struct control_file *start(void (*pause)(void *), void *user)
{
    struct control_file *f = NULL;
    struct mc_err err = {0};
    const struct control_file_options opt = {.path = PATH, .box = box, .no_thread = true, .pause = pause, .pause_user = user};
    if (control_file_start(&opt, &f, &err)) fail_msg("%s", err.msg);
    return f;
}

static void no_pause(void *user)
{
    (void)user;
}

/* In place where the file is there, as scripts do; the rights of a file that we make are 0644 here, which others cannot write.
 */
static void write_file(const char *mode, const void *data, size_t size, long at)
{
    FILE *f = fopen(PATH, mode);
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static void write_settings(uint32_t k, uint32_t rows)
{
    struct moe_settings s = settings_lossless(&flash);
    uint8_t wire[SETTINGS_WIRE_BYTES];
    s.top_k = s.inner_k = k;
    s.rows_exps = s.rows_shexp = rows;
    settings_to_wire(&s, wire);
    write_file("wb", wire, sizeof wire, 0);
}

static struct settings_state now(void)
{
    struct settings_state s;
    settings_box_get(box, &s);
    return s;
}

static void test_every_content(void **state)
{
    (void)state;
    struct mc_err err = {0};
    struct mc_json *root = NULL;
    char *text;
    size_t size;
    if (os_file_read_all(MC_TEST_DATA "/control/cfg.json", 1 << 20, &text, &size, &err)) fail_msg("%s", err.msg);
    if (mc_json_parse((struct mc_span){(const uint8_t *)text, size}, &root, &err)) fail_msg("%s", err.msg);
    struct control_file *f = start(no_pause, NULL);
    for (size_t i = 0; i < mc_json_count(root); i++) {
        const struct mc_json *row = mc_json_item(root, i), *want = mc_json_get(row, "settings");
        const struct mc_span hex = mc_json_string(mc_json_get(row, "hex"));
        uint8_t bytes[64] = {0};
        for (size_t b = 0; 2 * b < hex.size; b++) {
            const char digits[] = {(char)hex.data[2 * b], (char)hex.data[2 * b + 1], '\0'};
            bytes[b] = (uint8_t)strtoul(digits, NULL, 16);
        }
        write_settings(1, 7); /* something else first */
        control_file_look(f);
        assert_int_equal(now().settings.rows_exps, 7);
        const struct control_file_counts before = control_file_counts_get(f);
        write_file("wb", bytes, hex.size / 2, 0);
        for (int look = 0; look < 3; look++) control_file_look(f);
        const struct control_file_counts after = control_file_counts_get(f);
        const bool accept = mc_json_bool(mc_json_get(row, "accept")), is_short = hex.size / 2 < SETTINGS_WIRE_BYTES;
        if ((after.accepts - before.accepts == 1) != accept || (after.rejects - before.rejects == 1) != (!accept && !is_short))
            fail_msg("row %zu", i);
        assert_int_equal(now().settings.top_k, accept ? mc_json_int(mc_json_get(want, "moe_top_k")) : 1);
        assert_int_equal(now().settings.rows_shexp, accept ? mc_json_int(mc_json_get(want, "swiglu_shexp")) : 7);
    }
    control_file_stop(f);
    mc_json_destroy(root);
    free(text);
}

/* ---- writers in the middle -------------------------------------------------------------------------------------------- */

static const uint32_t settings_a[2] = {6, 0}, settings_b[2] = {4, 80};

struct writer {
    uint8_t wire[2][SETTINGS_WIRE_BYTES];
    unsigned to, at; /* what is being written, dwords done */
    unsigned how;    /* 0: eight writes; 1: cut, then eight writes; 2: two halves; 3: 8 bytes at a time */
};

/* One more piece of the write; called while the reader waits. */
static void write_a_piece(void *user)
{
    struct writer *w = user;
    if (w->at >= 8) return;
    if (w->how == 1 && w->at == 0) write_file("wb", "", 0, 0);
    const unsigned n = w->how == 2 ? 4 : w->how == 3 ? 2 : 1;
    write_file("r+b", w->wire[w->to] + 4 * w->at, 4 * n, 4 * (long)w->at);
    w->at += n;
    os_sleep_ms(5); /* the clock of the file system has gone on */
}

static void test_a_writer_in_the_middle_is_not_overheard(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 4; how++) {
        struct writer w = {.how = how, .at = 8};
        for (unsigned i = 0; i < 2; i++) {
            struct moe_settings s = settings_lossless(&flash);
            const uint32_t *from = i ? settings_b : settings_a;
            s.top_k = s.inner_k = from[0];
            s.rows_exps = s.rows_shexp = from[1];
            settings_to_wire(&s, w.wire[i]);
        }
        write_file("wb", w.wire[0], SETTINGS_WIRE_BYTES, 0);
        struct control_file *f = start(write_a_piece, &w);
        for (unsigned round = 0; round < 12; round++) {
            w.to = !w.to;
            w.at = 0;
            write_a_piece(&w);
            for (unsigned look = 0; look < 10 || w.at < 8; look++) {
                control_file_look(f);
                const struct moe_settings s = now().settings;
                const bool a = s.top_k == 6 && s.inner_k == 6 && !s.rows_exps && !s.rows_shexp;
                const bool b = s.top_k == 4 && s.inner_k == 4 && s.rows_exps == 80 && s.rows_shexp == 80;
                if (!a && !b) fail_msg("a mixture of two settings was taken");
                if (look > 2 && w.at < 8) write_a_piece(&w); /* a file that is short is not waited for */
            }
            control_file_look(f);
            assert_int_equal(now().settings.top_k, w.to ? 4 : 6); /* whole, it is taken */
        }
        assert_int_equal(control_file_counts_get(f).accepts, 12 + 1);
        assert_int_equal(control_file_counts_get(f).rejects, 0);
        control_file_stop(f);
        (void)remove(PATH);
    }
}

static void test_a_file_that_is_moved_there_is_taken(void **state)
{
    (void)state;
    write_settings(6, 0);
    struct control_file *f = start(no_pause, NULL);
    write_settings(5, 80);
    (void)remove(PATH ".new");
    assert_int_equal(rename(PATH, PATH ".new"), 0);
    control_file_look(f); /* gone: nothing changes */
    assert_int_equal(now().settings.top_k, 6);
    assert_int_equal(rename(PATH ".new", PATH), 0);
    control_file_look(f);
    assert_int_equal(now().settings.top_k, 5);
    assert_int_equal(n_logged, 1); /* nobody becomes lossy unawares */
    assert_non_null(strstr(last_log, "lossy=1"));
    write_settings(6, 0);
    control_file_look(f);
    assert_int_equal(now().settings.top_k, 6);
    assert_int_equal(n_logged, 1);
    control_file_stop(f);
    assert_true(os_file_exists(PATH)); /* not ours to remove */
}

/* ---- start and end ---------------------------------------------------------------------------------------------------- */

static void test_a_missing_file_is_created_and_removed(void **state)
{
    (void)state;
    uint8_t wire[SETTINGS_WIRE_BYTES], want[SETTINGS_WIRE_BYTES];
    struct moe_settings s = settings_lossless(&flash);
    s.top_k = 5;
    (void)settings_box_set(box, &s, SETTINGS_START, 0);
    settings_to_wire(&s, want);
    struct control_file *f = start(no_pause, NULL);
    assert_int_equal(os_guarded_read(PATH, wire, sizeof wire, NULL), OS_GUARD_OK);
    assert_memory_equal(wire, want, sizeof want);
    control_file_look(f);
    assert_int_equal(now().generation, 2); /* what we wrote is no change */
    write_file("r+b", "\4", 1, 0);
    control_file_look(f);
    assert_true(now().settings.top_k == 4 && now().source == SETTINGS_FILE);
    control_file_stop(f);
    assert_false(os_file_exists(PATH));

    f = start(no_pause, NULL);
    (void)remove(PATH);
    write_settings(3, 0); /* somebody else's from now on */
    write_file("ab", "more", 4, 0);
    control_file_look(f);
    assert_int_equal(now().settings.top_k, 3);
    control_file_stop(f);
}

static void test_a_given_file_is_applied_at_the_start(void **state)
{
    (void)state;
    write_settings(4, 64);
    struct control_file *f = start(no_pause, NULL);
    assert_true(now().settings.top_k == 4 && now().source == SETTINGS_FILE);
    control_file_look(f);
    assert_int_equal(now().generation, 2); /* once */
    control_file_stop(f);
    assert_true(os_file_exists(PATH));
}

static void test_a_bad_content_is_reported_once(void **state)
{
    (void)state;
    write_settings(4, 0);
    struct control_file *f = start(no_pause, NULL);
    n_logged = 0;
    write_file("r+b", "\11", 1, 0); /* k = 9 */
    for (int i = 0; i < 5; i++) control_file_look(f);
    assert_int_equal(n_logged, 1);
    assert_non_null(strstr(last_log, "field 0, moe_top_k: must be 1..6, got 9"));
    assert_int_equal(control_file_counts_get(f).rejects, 1);
    assert_int_equal(now().settings.top_k, 4);
    write_file("r+b", "\3", 1, 0);
    control_file_look(f);
    assert_int_equal(now().settings.top_k, 3);
    control_file_stop(f);
}

static void test_a_file_that_stays_short_is_reported(void **state)
{
    (void)state;
    write_file("wb", "short", 5, 0);
    struct control_file *f = start(no_pause, NULL);
    n_logged = 0;
    control_file_look(f);
    assert_true(n_logged <= 1);
    control_file_stop(f);
}

/* ---- the thread ------------------------------------------------------------------------------------------------------- */

static void test_the_thread_takes_what_a_script_writes(void **state)
{
    (void)state;
    struct mc_err err = {0};
    struct control_file *f = NULL;
    const struct control_file_options opt = {.path = PATH, .box = box};
    assert_int_equal(control_file_start(&opt, &f, &err), MC_OK);
    assert_string_equal(control_file_path(f), PATH);
    for (uint32_t k = 1; k < 6; k++) {
        const uint64_t begin = os_clock_ns();
        write_settings(k, 0);
        while (now().settings.top_k != k) {
            if (os_clock_ns() - begin > UINT64_C(20000000000)) fail_msg("it is not taken");
            os_sleep_ms(1);
        }
        printf("accepted after %.1f ms\n", (double)(os_clock_ns() - begin) * 1e-6);
    }
    control_file_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_every_content),
        TEST(test_a_writer_in_the_middle_is_not_overheard),
        TEST(test_a_file_that_is_moved_there_is_taken),
        TEST(test_a_missing_file_is_created_and_removed),
        TEST(test_a_given_file_is_applied_at_the_start),
        TEST(test_a_bad_content_is_reported_once),
        TEST(test_a_file_that_stays_short_is_reported),
        TEST(test_the_thread_takes_what_a_script_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
