/* test_os_windows.c - what only Windows has: UTF-16 names, long paths, files that cannot be cut while mapped, CPU records.
 *
 * Goal: names survive both ways, and captured answers of GetLogicalProcessorInformationEx come out as the machines they are.
 * Method: the real calls, under wine in our builds; the records are files in tests/data/topology/windows. */
#ifdef _WIN32
#include "platform/windows/os_windows.h"
#include "platform/windows/utf16.h"
#else
#include "platform/os.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef _WIN32
#include <windows.h>

static void texts_survive_both_ways(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa4\xe6\x97\xa5\xf0\x9f\x8d\xb5";
    wchar_t *const wide = utf16_from_utf8(text);
    assert_non_null(wide);
    assert_int_equal(wcslen(wide), 5);
    assert_int_equal(wide[3], 0xd83c);
    char *const back = utf8_from_utf16(wide);
    assert_string_equal(back, text);
    free(back);
    free(wide);
    assert_null(utf16_from_utf8("\xff"));
    struct mc_err err;
    struct os_file *f;
    assert_int_equal(os_file_open("\xff.gguf", &f, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "UTF-8"));
}

static void errors_are_words(void **state)
{
    (void)state;
    char buf[ERROR_TEXT_CAP];
    assert_true(strlen(windows_error_text(ERROR_FILE_NOT_FOUND, buf)) > 5);
    assert_non_null(strstr(windows_error_text(0x3fffffff, buf), "Windows error"));
}

static void long_paths_work(void **state)
{
    (void)state;
    char path[400] = "test_os_windows-long.tmp";
    const size_t n_top = strlen(path);
    size_t n = n_top;
    (void)CreateDirectoryA(path, NULL);
    for (int i = 0; i < 8; i++) { /* folders of 40, one in the other */
        path[n++] = '/';
        memset(path + n, 'a' + i, 40);
        n += 40;
        path[n] = '\0';
        wchar_t *const wide = utf16_path(path);
        assert_true(CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
        free(wide);
    }
    memcpy(path + n, "/x", 3);
    struct mc_err err;
    struct os_writer *w;
    struct os_file *f;
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK);
    assert_int_equal(os_writer_write(w, "x", 1, &err), MC_OK);
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
    assert_int_equal(os_file_open(path, &f, &err), MC_OK);
    assert_int_equal(os_file_size(f), 1);
    os_file_close(f);
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK); /* over the one that is there */
    assert_int_equal(os_writer_write(w, "yy", 2, &err), MC_OK);
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
    assert_int_equal(os_file_open(path, &f, &err), MC_OK);
    assert_int_equal(os_file_size(f), 2);
    os_file_close(f);
    wchar_t *const file = utf16_path(path);
    assert_true(DeleteFileW(file));
    free(file);
    for (; n > n_top; n -= 41) {
        path[n] = '\0';
        wchar_t *const wide = utf16_path(path);
        assert_true(RemoveDirectoryW(wide));
        free(wide);
    }
    path[n] = '\0';
    assert_true(RemoveDirectoryA(path));
}

static void devices_and_pipes_are_refused(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_file *f;
    assert_int_equal(os_file_open("NUL", &f, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "NUL"));
    const HANDLE pipe = CreateNamedPipeA("\\\\.\\pipe\\modchip-test", PIPE_ACCESS_DUPLEX, 0, 1, 512, 512, 0, NULL);
    assert_true(pipe != INVALID_HANDLE_VALUE);
    assert_int_equal(os_file_open("\\\\.\\pipe\\modchip-test", &f, &err), MC_EIO);
    CloseHandle(pipe);
}

static void a_writer_refuses_what_is_read_only_and_writes_to_devices(void **state)
{
    (void)state;
    static const char path[] = "test_os_windows-locked.tmp";
    struct mc_err err;
    struct os_writer *w;
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK);
    assert_int_equal(os_writer_write(w, "x", 1, &err), MC_OK);
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
    assert_true(SetFileAttributesA(path, FILE_ATTRIBUTE_READONLY));
    assert_int_equal(os_writer_create(path, &w, &err), MC_EIO);
    assert_non_null(strstr(err.msg, path));
    assert_true(SetFileAttributesA(path, FILE_ATTRIBUTE_NORMAL));
    assert_true(DeleteFileA(path));
    assert_int_equal(os_writer_create("NUL", &w, &err), MC_OK);
    assert_int_equal(os_writer_write(w, "x", 1, &err), MC_OK);
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
}

/* ---- CPU records ---------------------------------------------------------------------------------------------------- */

enum { ROWS_MAX = 1024 };

static size_t rows_of(const char *name, struct os_cpu_row *rows)
{
    char path[1024], *data;
    size_t size;
    snprintf(path, sizeof path, "%s/topology/windows/%s.bin", MC_TEST_DATA, name);
    assert_int_equal(os_file_read_all(path, 1 << 20, &data, &size, NULL), MC_OK);
    const size_t n = windows_cpu_rows_parse((struct mc_span){(const uint8_t *)data, size}, rows, ROWS_MAX);
    /* cut anywhere it must neither read beyond nor give more */
    for (size_t cut = 0; cut < size; cut += 61) {
        static struct os_cpu_row fewer[ROWS_MAX];
        uint8_t *const part = malloc(cut + 1);
        memcpy(part, data, cut);
        assert_true(windows_cpu_rows_parse((struct mc_span){part, cut}, fewer, ROWS_MAX) <= n);
        free(part);
    }
    free(data);
    return n;
}

static void check_ryzen(const char *name)
{
    static struct os_cpu_row rows[ROWS_MAX];
    assert_int_equal(rows_of(name, rows), 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(rows[i].cpu, i);
        assert_int_equal(rows[i].core, i / 2);
        assert_int_equal(rows[i].l3, i / 16);
        assert_int_equal(rows[i].package, 0);
        assert_int_equal(rows[i].node, 0);
        assert_int_equal(rows[i].l1d_bytes, 48 << 10);
        assert_int_equal(rows[i].l2_bytes, 1 << 20);
        assert_int_equal(rows[i].l3_bytes, 32 << 20);
    }
}

static void records_become_machines(void **state)
{
    (void)state;
    static struct os_cpu_row rows[ROWS_MAX];
    check_ryzen("win-ryzen9-9955hx");
    check_ryzen("win-ryzen9-9955hx-unknown-relations");
    assert_int_equal(rows_of("win-one-cpu-no-caches", rows), 1);
    assert_int_equal(rows[0].l3, OS_CPU_NONE);
    assert_int_equal(rows_of("wine8-2cpu", rows), 2);
    assert_int_not_equal(rows[0].core, rows[1].core);
    assert_int_equal(rows_of("win-13900k-hybrid", rows), 32);
    assert_true(rows[0].efficiency > rows[31].efficiency);
    assert_int_equal(rows[0].core, rows[1].core);
    assert_int_not_equal(rows[30].core, rows[31].core);
}

/* 192 CPUs need three processor groups, and the package's record three masks. */
static void records_span_processor_groups(void **state)
{
    (void)state;
    static struct os_cpu_row rows[ROWS_MAX];
    assert_int_equal(rows_of("win-epyc-9654-1s", rows), 192);
    unsigned cores[192] = {0}, l3[12] = {0};
    for (unsigned i = 0; i < 192; i++) {
        assert_int_equal(rows[i].package, 0);
        assert_true(rows[i].core < 96 && rows[i].l3 < 12);
        if (i > 0) assert_true(rows[i - 1].cpu < rows[i].cpu);
        cores[rows[i].core]++;
        l3[rows[i].l3]++;
    }
    for (unsigned i = 0; i < 96; i++) assert_int_equal(cores[i], 2);
    for (unsigned i = 0; i < 12; i++) assert_int_equal(l3[i], 16);
    assert_true(rows[191].cpu >= 128);
}

static void this_machine_has_rows(void **state)
{
    (void)state;
    static struct os_cpu_row rows[ROWS_MAX];
    assert_true(os_cpu_rows(rows, ROWS_MAX) >= 1);
    assert_int_equal(os_cpu_rows(rows, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_survive_both_ways),
        cmocka_unit_test(errors_are_words),
        cmocka_unit_test(long_paths_work),
        cmocka_unit_test(devices_and_pipes_are_refused),
        cmocka_unit_test(a_writer_refuses_what_is_read_only_and_writes_to_devices),
        cmocka_unit_test(records_become_machines),
        cmocka_unit_test(records_span_processor_groups),
        cmocka_unit_test(this_machine_has_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("skipped: UTF-16 names, long paths and CPU records are things of Windows");
    return 0;
}

#endif
