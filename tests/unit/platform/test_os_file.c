/* test_os_file.c - files, maps and the writer, on every system.
 *
 * Goal: each call does what os.h promises, and each refusal names the file. Method: files are made with the seam's own writer
 * in the current directory, because only it knows UTF-8 names everywhere. */
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef _WIN32
#include "platform/windows/utf16.h"

#include <windows.h>
#endif

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) + 1);
}

/* Writes `size` bytes of the pattern in pieces of changing length. */
static void make_file(const char *path, size_t size)
{
    struct mc_err err;
    struct os_writer *w;
    uint8_t piece[1000];
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK);
    for (size_t off = 0; off < size;) {
        size_t n = 1 + off % sizeof piece;
        if (n > size - off) n = size - off;
        for (size_t i = 0; i < n; i++) piece[i] = pattern(off + i);
        assert_int_equal(os_writer_write(w, piece, n, &err), MC_OK);
        off += n;
    }
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
}

static void remove_file(const char *path)
{
#ifdef _WIN32
    wchar_t *const wide = utf16_path(path);
    assert_true(DeleteFileW(wide));
    free(wide);
#else
    assert_int_equal(remove(path), 0);
#endif
    assert_false(os_file_exists(path));
}

static void expect_file(const char *path, size_t size)
{
    char *data;
    size_t got;
    assert_int_equal(os_file_read_all(path, size, &data, &got, NULL), MC_OK);
    assert_int_equal(got, size);
    for (size_t i = 0; i < size; i++) assert_int_equal((uint8_t)data[i], pattern(i));
    free(data);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_file *f = NULL;
    assert_int_equal(os_file_open("no-such-file.bin", &f, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "no-such-file.bin"));
    assert_null(f);
    assert_int_equal(os_file_open("no-such-folder/x.bin", &f, NULL), MC_EIO);
    assert_false(os_file_exists("no-such-file.bin"));
}

static void a_directory_is_refused(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_file *f;
    struct os_writer *w;
    assert_true(os_file_exists("."));
    assert_int_equal(os_file_open(".", &f, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "directory"));
    assert_int_equal(os_writer_create(".", &w, &err), MC_EIO);
}

static void reads_at_any_place(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-read.tmp";
    enum { SIZE = 100000 };
    struct mc_err err;
    struct os_file *f;
    uint8_t buf[5000];
    make_file(path, SIZE);
    assert_int_equal(os_file_open(path, &f, &err), MC_OK);
    assert_int_equal(os_file_size(f), SIZE);
    assert_string_equal(os_file_path(f), path);
    static const size_t at[] = {0, 1, 4095, 65536, SIZE - sizeof buf};
    for (size_t k = 0; k < ARRAY_LEN(at); k++) {
        assert_int_equal(os_file_read_at(f, at[k], buf, sizeof buf, &err), MC_OK);
        for (size_t i = 0; i < sizeof buf; i++) assert_int_equal(buf[i], pattern(at[k] + i));
    }
    assert_int_equal(os_file_read_at(f, SIZE, buf, 0, &err), MC_OK);
    assert_int_equal(os_file_read_at(f, SIZE - 10, buf, 11, &err), MC_EIO);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "100000"));
    assert_int_equal(os_file_read_at(f, UINT64_MAX - 3, buf, 8, &err), MC_EARG);
    assert_int_equal(os_file_read_at(f, INT64_MAX, buf, 8, &err), MC_EARG);
    os_file_close(f);
    remove_file(path);
}

/* The sizes around a page's end are those where the bytes after the end need care. */
static void a_map_is_readable_to_the_end_of_its_page(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-map.tmp";
    struct os_caps caps;
    os_caps_get(&caps);
    static const size_t sizes[] = {1, 63, 4000, 4031, 4032, 4033, 4064, 4095, 4096, 4097, 65536 - 32, 65536, 65537, 131072};
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        struct mc_err err;
        struct os_file *f;
        struct os_map *m;
        make_file(path, sizes[k]);
        assert_int_equal(os_file_open(path, &f, &err), MC_OK);
        assert_int_equal(os_map_open(f, &m, &err), MC_OK);
        os_file_close(f);
        const struct mc_span s = os_map_bytes(m);
        assert_int_equal(s.size, sizes[k]);
        for (size_t i = 0; i < s.size; i++) assert_int_equal(s.data[i], pattern(i));
        for (size_t i = s.size; i % caps.page_bytes; i++) assert_int_equal(*(const volatile uint8_t *)(s.data + i), 0);
        os_map_will_need(m, 0, s.size);
        os_map_will_need(m, s.size / 2, UINT64_MAX);
        os_map_will_need(m, UINT64_MAX, 1);
        assert_false(os_map_damaged(m));
        os_map_close(m);
        remove_file(path);
    }
}

static void an_empty_file_has_no_map(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-empty.tmp";
    struct mc_err err;
    struct os_file *f;
    struct os_map *m = NULL;
    char *data;
    size_t size;
    make_file(path, 0);
    assert_int_equal(os_file_open(path, &f, &err), MC_OK);
    assert_int_equal(os_file_size(f), 0);
    assert_int_equal(os_map_open(f, &m, &err), MC_EFORMAT);
    assert_non_null(strstr(err.msg, "empty"));
    assert_null(m);
    os_file_close(f);
    assert_int_equal(os_file_read_all(path, 0, &data, &size, &err), MC_OK);
    assert_int_equal(size, 0);
    assert_int_equal(data[0], '\0');
    free(data);
    remove_file(path);
}

static void reads_small_files_whole(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-all.tmp";
    static const size_t sizes[] = {1, 65534, 65535, 65536, 65537, 300000};
    struct mc_err err;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        char *data = NULL;
        size_t size = 0;
        make_file(path, sizes[k]);
        assert_int_equal(os_file_read_all(path, sizes[k], &data, &size, &err), MC_OK);
        assert_int_equal(size, sizes[k]);
        for (size_t i = 0; i < size; i++) assert_int_equal((uint8_t)data[i], pattern(i));
        assert_int_equal(data[size], '\0');
        free(data);
        data = NULL;
        assert_int_equal(os_file_read_all(path, sizes[k] - 1, &data, &size, &err), MC_EFORMAT);
        assert_non_null(strstr(err.msg, path));
        assert_null(data);
    }
    remove_file(path);
    char *data = NULL;
    size_t size;
    assert_int_equal(os_file_read_all(path, 10, &data, &size, &err), MC_EIO);
    assert_int_equal(os_file_read_all(".", 10, &data, &size, &err), MC_EIO);
}

static void names_are_utf8(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-\xc3\xa4\xe6\x97\xa5\xf0\x9f\x8d\xb5.tmp"; /* umlaut, kanji, beyond 16 bits */
    struct os_file *f;
    make_file(path, 10);
    assert_true(os_file_exists(path));
    assert_int_equal(os_file_open(path, &f, NULL), MC_OK);
    assert_string_equal(os_file_path(f), path);
    os_file_close(f);
    remove_file(path);
}

static void a_writer_replaces_what_is_there(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-writer.tmp";
    struct mc_err err;
    struct os_writer *w;
    make_file(path, 200000);
    static uint8_t big[150000]; /* one piece larger than the buffer */
    for (size_t i = 0; i < sizeof big; i++) big[i] = pattern(i);
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK);
    assert_int_equal(os_writer_write(w, big, 10, &err), MC_OK);
    assert_int_equal(os_writer_write(w, big + 10, sizeof big - 10, &err), MC_OK);
    expect_file(path, 200000); /* until finish the older file is there */
    assert_int_equal(os_writer_finish(w, &err), MC_OK);
    expect_file(path, sizeof big);
    assert_false(os_file_exists("test_os_file-writer.tmp.part"));
    remove_file(path);
}

static void a_writer_that_gives_up_leaves_the_older_file(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-keep.tmp", part[] = "test_os_file-keep.tmp.part";
    struct mc_err err;
    struct os_writer *w;
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK); /* nothing there: nothing is left */
    assert_int_equal(os_writer_write(w, "x", 1, &err), MC_OK);
    assert_true(os_file_exists(part));
    os_writer_abort(w);
    assert_false(os_file_exists(path));
    assert_false(os_file_exists(part));
    make_file(path, 5000);
    assert_int_equal(os_writer_create(path, &w, &err), MC_OK);
    static uint8_t big[150000];
    assert_int_equal(os_writer_write(w, big, sizeof big, &err), MC_OK);
    os_writer_abort(w);
    expect_file(path, 5000);
    assert_false(os_file_exists(part));
    remove_file(path);
}

/* Two at a time, and one whose .part was left by a process that was killed: nobody writes into another's file. */
static void writers_of_one_name_do_not_meet(void **state)
{
    (void)state;
    static const char path[] = "test_os_file-two.tmp", left[] = "test_os_file-two.tmp.part";
    struct mc_err err;
    struct os_writer *a, *b;
    make_file(left, 77);
    assert_int_equal(os_writer_create(path, &a, &err), MC_OK);
    assert_int_equal(os_writer_create(path, &b, &err), MC_OK);
    assert_int_equal(os_writer_write(a, "a", 1, &err), MC_OK);
    assert_int_equal(os_writer_write(b, "bb", 2, &err), MC_OK);
    assert_int_equal(os_writer_finish(a, &err), MC_OK);
    char *data;
    size_t size;
    assert_int_equal(os_file_read_all(path, 10, &data, &size, &err), MC_OK);
    assert_string_equal(data, "a");
    free(data);
    assert_int_equal(os_writer_finish(b, &err), MC_OK);
    assert_int_equal(os_file_read_all(path, 10, &data, &size, &err), MC_OK);
    assert_string_equal(data, "bb");
    free(data);
    expect_file(left, 77);
    remove_file(left);
    remove_file(path);
}

static void a_writer_without_a_place_is_refused(void **state)
{
    (void)state;
    struct mc_err err;
    struct os_writer *w = NULL;
    assert_int_equal(os_writer_create("no-such-folder/out.bin", &w, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "no-such-folder/out.bin"));
    assert_int_equal(os_writer_create(".", &w, &err), MC_EIO);
    assert_non_null(strstr(err.msg, "directory"));
    assert_int_equal(os_writer_create("", &w, &err), MC_EARG);
    assert_null(w);
}

static void two_names_of_one_file(void **state)
{
    (void)state;
    static const char a[] = "test_os_file-one.tmp", b[] = "test_os_file-other.tmp";
    make_file(a, 10);
    make_file(b, 10);
    assert_true(os_file_same(a, a));
    assert_true(os_file_same(a, "./test_os_file-one.tmp"));
    assert_false(os_file_same(a, b));
    assert_false(os_file_same(a, "no-such-file.bin"));
    assert_false(os_file_same("no-such-file.bin", "no-such-file.bin"));
    assert_false(os_file_same(".", "."));
    remove_file(a);
    remove_file(b);
}

static void closing_nothing_is_allowed(void **state)
{
    (void)state;
    os_file_close(NULL);
    os_map_close(NULL);
    os_writer_abort(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(a_directory_is_refused),
        cmocka_unit_test(reads_at_any_place),
        cmocka_unit_test(a_map_is_readable_to_the_end_of_its_page),
        cmocka_unit_test(an_empty_file_has_no_map),
        cmocka_unit_test(reads_small_files_whole),
        cmocka_unit_test(names_are_utf8),
        cmocka_unit_test(a_writer_replaces_what_is_there),
        cmocka_unit_test(a_writer_that_gives_up_leaves_the_older_file),
        cmocka_unit_test(writers_of_one_name_do_not_meet),
        cmocka_unit_test(a_writer_without_a_place_is_refused),
        cmocka_unit_test(two_names_of_one_file),
        cmocka_unit_test(closing_nothing_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
