/* gv.h - reads the golden vector files (.gv) described in tests/data/golden/README.md. For tests: any fault ends the program.
 */
#ifndef TESTS_SUPPORT_GV_H
#define TESTS_SUPPORT_GV_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gv {
    uint8_t *data;
    size_t size;
};

struct gv_record {
    unsigned n_dims;
    uint64_t dims[8];
    uint64_t count;   /* product of dims */
    const float *f;   /* type 0 */
    const int32_t *i; /* type 1 */
};

static inline void gv_die(const char *what, const char *name)
{
    fprintf(stderr, "golden vectors: %s %s\n", what, name);
    exit(1);
}

static inline struct gv gv_load(const char *path)
{
    struct gv g = {0};
    FILE *file = fopen(path, "rb");
    if (!file) gv_die("cannot open", path);
    fseek(file, 0, SEEK_END);
    g.size = (size_t)ftell(file);
    rewind(file);
    g.data = malloc(g.size);
    if (!g.data || fread(g.data, 1, g.size, file) != g.size || memcmp(g.data, "GVEC0001", 8)) gv_die("cannot read", path);
    fclose(file);
    return g;
}

static inline int gv_find(const struct gv *g, const char *name, struct gv_record *out)
{
    uint64_t n;
    memcpy(&n, g->data + 8, 8);
    size_t at = 16;
    for (uint64_t r = 0; r < n; r++) {
        uint32_t len, type;
        memcpy(&len, g->data + at, 4);
        memcpy(&type, g->data + at + 4, 4);
        const char *record = (const char *)g->data + at + 8;
        at += 8 + (len + 7u) / 8 * 8;
        struct gv_record rec = {.count = 1};
        uint64_t n_dims;
        memcpy(&n_dims, g->data + at, 8);
        at += 8;
        rec.n_dims = (unsigned)n_dims;
        for (unsigned d = 0; d < n_dims; d++, at += 8) {
            memcpy(&rec.dims[d], g->data + at, 8);
            rec.count *= rec.dims[d];
        }
        if (type == 0)
            rec.f = (const float *)(const void *)(g->data + at);
        else
            rec.i = (const int32_t *)(const void *)(g->data + at);
        at += (rec.count * 4 + 7) / 8 * 8;
        if (len == strlen(name) && !memcmp(record, name, len)) {
            *out = rec;
            return 1;
        }
    }
    return 0;
}

static inline struct gv_record gv_need(const struct gv *g, const char *name)
{
    struct gv_record r;
    if (!gv_find(g, name, &r)) gv_die("no record", name);
    return r;
}

/* |a - b| / |b| */
static inline double gv_rel_l2(const float *a, const float *b, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / (norm > 0 ? norm : 1));
}

static inline size_t gv_argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

#endif
