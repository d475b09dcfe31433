/* fuzz_gguf.c - any bytes as a GGUF file: parsed, and if accepted, everything that callers may ask for is asked for.
 *
 * The same bytes also arrive in growing pieces, as they do from a file; the verdict must be the one on the whole. Accepted
 * directories are held to their contract (names found, sizes inside the file), so that a wrong answer is a finding too. */
#include "io/gguf/gguf_dir.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every byte of a span, so that AddressSanitizer sees a wrong one. */
static void touch(struct mc_span s)
{
    for (size_t i = 0; i < s.size; i++) (void)*(const volatile uint8_t *)(s.data + i);
}

/* A name as a C string finds its entry, unless it has a NUL inside. */
static char *c_string(struct mc_span name)
{
    char *s = malloc(name.size + 1);
    if (!s) abort();
    memcpy(s, name.data, name.size);
    s[name.size] = 0;
    return s;
}

static void walk_value(const struct gguf *g, const struct gguf_value *v)
{
    touch(v->key);
    touch(v->data);
    struct mc_err err;
    char *key = c_string(v->key);
    if (strlen(key) == v->key.size) assert(gguf_find(g, key) == v);
    uint64_t u;
    int64_t k;
    double x;
    bool b;
    struct mc_span s, last = {0};
    const bool is_int = gguf_get_u64(g, key, &u, &err) == MC_OK;
    const bool is_float = gguf_get_f64(g, key, &x, &err) == MC_OK;
    const bool is_bool = gguf_get_bool_or(g, key, true, &b, &err) == MC_OK && v->key.size == strlen(key);
    const bool is_text = gguf_get_string(g, key, &s, &err) == MC_OK;
    assert(is_int + is_float + is_bool + is_text <= 1);
    if (is_text) touch(s);
    free(key);
    uint64_t n = 0;
    for (size_t pos = 0; gguf_next_string(v, &pos, &s); n++) {
        touch(s);
        last = s;
    }
    if (v->type == GGUF_ARRAY && v->item_type == GGUF_STRING) {
        assert(n == v->count);
        if (n) assert(last.data + last.size == v->data.data + v->data.size);
    } else {
        assert(n == 0);
    }
    for (uint64_t i = 0; i < v->count; i++) {
        const bool item_int = gguf_item_i64(g, v, i, &k, &err) == MC_OK;
        const bool item_float = gguf_item_f64(g, v, i, &x, &err) == MC_OK;
        assert(!item_int || !item_float);
        if (i == 64 && v->count > 128) i = v->count - 2; /* the last one too, but no long walks */
    }
}

static void walk_tensor(const struct gguf *g, const struct gguf_tensor *t, struct mc_span file)
{
    char *name = c_string(t->name);
    if (strlen(name) == t->name.size) assert(gguf_tensor_find(g, name) == t);
    free(name);
    const struct quant_info *q = quant_info((uint32_t)t->type);
    assert(q && t->n_dims >= 1 && t->n_dims <= 4);
    assert(t->size_bytes == quant_row_bytes(q, t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3]);
    assert(t->file_off % gguf_alignment(g) == 0);
    assert(t->size_bytes <= file.size && t->file_off <= file.size - t->size_bytes);
    touch((struct mc_span){file.data + t->file_off, (size_t)t->size_bytes});
}

/* Verdict on the directory when the file is read piece by piece; each piece ends where its memory ends. */
static enum mc_code in_pieces(struct mc_span file)
{
    struct gguf_dir dir;
    enum mc_code rc;
    uint64_t need = 0;
    size_t have = file.size < 40 ? file.size : 40;
    for (;;) {
        uint8_t *piece = malloc(have + !have);
        if (!piece) abort();
        if (have) memcpy(piece, file.data, have);
        rc = gguf_dir_parse(&dir, (struct mc_span){piece, have}, file.size, "pieces", &need, NULL);
        if (rc == MC_OK) gguf_dir_free(&dir);
        free(piece);
        if (rc != MC_EBUSY) return rc;
        assert(need > have && need <= file.size);
        have = need > 2 * have ? (size_t)need : 2 * have < file.size ? 2 * have : file.size;
    }
}

static enum mc_code in_one(struct mc_span file)
{
    struct gguf_dir dir;
    uint64_t need;
    const enum mc_code rc = gguf_dir_parse(&dir, file, file.size, "whole", &need, NULL);
    if (rc == MC_OK) gguf_dir_free(&dir);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct mc_err err = {0};
    const struct mc_span file = {data, size};
    assert(in_pieces(file) == in_one(file));
    const enum mc_code rc = gguf_parse(file, "fuzz.gguf", &g, &err);
    if (rc != MC_OK) {
        assert(rc == MC_EFORMAT || rc == MC_EUNSUPPORTED);
        assert(!g && err.code == rc && strstr(err.msg, "fuzz.gguf"));
        return 0;
    }
    for (size_t i = 0; i < gguf_n_values(g); i++) walk_value(g, gguf_value_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) walk_tensor(g, gguf_tensor_at(g, i), file);
    gguf_close(g);
    return 0;
}
