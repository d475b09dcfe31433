/* Files in a folder that everybody may write: what is not ours in every respect is neither read nor waited for nor touched. */
#define _DEFAULT_SOURCE
#include "platform/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef __linux__
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#define PATH "test_guarded.bin"

static char buf[32];

static enum os_guard look(void)
{
    return os_guarded_read(PATH, buf, sizeof buf, NULL);
}

static void put(const char *path, const char *text, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(text, 1, size, f);
    fclose(f);
}

static int clean(void **state)
{
    (void)state;
    (void)remove(PATH);
    return 0;
}

static const char text40[] = "0123456789012345678901234567890123456789";

static void test_create_read_overwrite_remove(void **state)
{
    (void)state;
    struct os_file_id made, seen, other = {0};
    assert_int_equal(look(), OS_GUARD_MISSING);
    assert_int_equal(os_guarded_overwrite(PATH, text40, 32), OS_GUARD_MISSING);
    assert_int_equal(os_guarded_create(PATH, text40, 32, &made), OS_GUARD_OK);
    assert_int_equal(os_guarded_create(PATH, text40, 32, &other), OS_GUARD_TAKEN);
    assert_int_equal(os_guarded_read(PATH, buf, 32, &seen), OS_GUARD_OK);
    assert_memory_equal(buf, text40, 32);
    assert_true(made.device == seen.device && made.file == seen.file && made.written_ns == seen.written_ns);
    put(PATH, text40, 40);
    assert_int_equal(os_guarded_overwrite(PATH, "abc", 3), OS_GUARD_OK);
    assert_int_equal(look(), OS_GUARD_OK);
    assert_memory_equal(buf, "abc3456", 7);
    other = made;
    other.file++;
    os_guarded_remove(PATH, &other);
    assert_true(os_file_exists(PATH));
    os_guarded_remove(PATH, &made);
    assert_false(os_file_exists(PATH));
    os_guarded_remove(PATH, &made);
}

static void test_sizes(void **state)
{
    (void)state;
    put(PATH, text40, 0);
    assert_int_equal(look(), OS_GUARD_SHORT);
    put(PATH, text40, 31);
    assert_int_equal(look(), OS_GUARD_SHORT);
    put(PATH, text40, 32);
    assert_int_equal(look(), OS_GUARD_OK);
    char page[4097] = {0};
    put(PATH, page, 4096);
    assert_int_equal(look(), OS_GUARD_OK);
    put(PATH, page, 4097);
    assert_int_equal(look(), OS_GUARD_LONG);
}

static void test_temp_path(void **state)
{
    (void)state;
    char path[4096], small[4];
    assert_true(os_temp_path("x.bin", path, sizeof path));
    assert_non_null(strstr(path, "x.bin"));
    assert_false(os_temp_path("x.bin", small, sizeof small));
}

#ifdef __linux__
static void test_what_is_no_file_of_ours(void **state)
{
    (void)state;
    put("test_guarded.target", text40, 40);
    assert_int_equal(symlink("test_guarded.target", PATH), 0);
    assert_int_equal(look(), OS_GUARD_LINK);
    assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_LINK);
    assert_int_equal(os_guarded_create(PATH, "x", 1, NULL), OS_GUARD_TAKEN);
    (void)unlink(PATH);
    assert_int_equal(symlink("nowhere", PATH), 0);
    assert_int_equal(look(), OS_GUARD_LINK);
    assert_int_equal(os_guarded_create(PATH, "x", 1, NULL), OS_GUARD_TAKEN);
    assert_false(os_file_exists("nowhere"));
    (void)unlink(PATH);
    assert_int_equal(link("test_guarded.target", PATH), 0);
    assert_int_equal(look(), OS_GUARD_NAMES);
    assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_NAMES);
    (void)unlink(PATH);
    assert_int_equal(mkfifo(PATH, 0600), 0);
    assert_int_equal(look(), OS_GUARD_KIND); /* and comes back although nobody writes */
    assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_KIND);
    (void)unlink(PATH);
    assert_int_equal(mkdir(PATH, 0700), 0);
    assert_int_equal(look(), OS_GUARD_KIND);
    assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_KIND);
    (void)rmdir(PATH);
    assert_int_equal(os_guarded_read("/dev/zero", buf, sizeof buf, NULL), OS_GUARD_KIND);
    assert_int_equal(os_guarded_read("/dev/full", buf, sizeof buf, NULL), OS_GUARD_KIND);
    struct stat st;
    assert_int_equal(stat("test_guarded.target", &st), 0);
    assert_int_equal(st.st_size, 40); /* nothing reached it */
    assert_int_equal(os_guarded_read("test_guarded.target", buf, 32, NULL), OS_GUARD_OK);
    assert_memory_equal(buf, text40, 32);
    (void)unlink("test_guarded.target");
}

static void test_rights_and_owners(void **state)
{
    (void)state;
    static const mode_t wrong[] = {0666, 0660, 0602, 0620};
    put(PATH, text40, 32);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(chmod(PATH, wrong[i]), 0);
        assert_int_equal(look(), OS_GUARD_MODE);
        assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_MODE);
    }
    assert_int_equal(chmod(PATH, 0644), 0);
    assert_int_equal(look(), OS_GUARD_OK);
    if (chown(PATH, 12345, 12345)) {
        printf("skipped: a file of another user (only root can give one away)\n");
        return;
    }
    assert_int_equal(look(), OS_GUARD_OWNER);
    assert_int_equal(os_guarded_overwrite(PATH, "x", 1), OS_GUARD_OWNER);
}

static void test_a_large_sparse_file_is_not_read(void **state)
{
    (void)state;
    put(PATH, text40, 32);
    assert_int_equal(truncate(PATH, 1 << 30), 0);
    assert_int_equal(look(), OS_GUARD_LONG);
}

static void test_a_new_file_is_for_its_user_alone(void **state)
{
    (void)state;
    struct stat st;
    const mode_t before = umask(0);
    assert_int_equal(os_guarded_create(PATH, text40, 32, NULL), OS_GUARD_OK);
    (void)umask(before);
    assert_int_equal(stat(PATH, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}
#endif

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, clean, clean)
    const struct CMUnitTest tests[] = {
        TEST(test_create_read_overwrite_remove),
        TEST(test_sizes),
        TEST(test_temp_path),
#ifdef __linux__
        TEST(test_what_is_no_file_of_ours),
        TEST(test_rights_and_owners),
        TEST(test_a_large_sparse_file_is_not_read),
        TEST(test_a_new_file_is_for_its_user_alone),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
