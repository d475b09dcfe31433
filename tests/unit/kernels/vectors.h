/* vectors.h - arrays of tests/data/quants by name (its README.md says what they hold). */
#ifndef TESTS_UNIT_KERNELS_VECTORS_H
#define TESTS_UNIT_KERNELS_VECTORS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct vec {
    void *data; /* malloc'ed, exactly as long as the array */
    size_t bytes;
    size_t dim[4]; /* 1 where the array has fewer dimensions */
};

static inline struct vec vec_load(const char *type, const char *array)
{
    char line[256], want[64], name[64], file[64], dtype[16], shape[32], path[1024];
    long offset = 0;
    struct vec v = {NULL, 0, {1, 1, 1, 1}};
    FILE *f = fopen(MC_TEST_DATA "/quants/index.tsv", "rb");
    assert_non_null(f);
    snprintf(want, sizeof want, "%s.%s", type, array);
    while (!v.data && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %63s %ld %zu %15s %31s", name, file, &offset, &v.bytes, dtype, shape) != 6 || strcmp(name, want))
            continue;
        sscanf(shape, "%zux%zux%zux%zu", &v.dim[0], &v.dim[1], &v.dim[2], &v.dim[3]);
        v.data = malloc(v.bytes);
        assert_non_null(v.data);
        snprintf(path, sizeof path, MC_TEST_DATA "/quants/%s", file);
        FILE *bin = fopen(path, "rb");
        assert_non_null(bin);
        assert_int_equal(fseek(bin, offset, SEEK_SET), 0);
        assert_int_equal(fread(v.data, 1, v.bytes, bin), v.bytes);
        fclose(bin);
    }
    fclose(f);
    if (!v.data) fail_msg("no array %s in index.tsv", want);
    return v;
}

static inline const void *vec_row(const struct vec *v, size_t row)
{
    return (const char *)v->data + row * (v->bytes / v->dim[0]);
}

#endif
