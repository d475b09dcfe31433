/* test_weights.c - goal: the bytes of every tensor are those of the file, with 64 more readable behind them even where the file
 * ends with a page; a file that is cut while it is mapped gives a name, not a signal. Method: plain reads beside the mapping.
 */
#include "tests/unit/io/gguf_image.h"

#include "io/weights/weights.h"
#include "platform/os.h"

static struct gguf *open_file(const char *path)
{
    struct gguf *g = NULL;
    struct mc_err err = {0};
    if (gguf_open(path, &g, &err) != MC_OK) fail_msg("%s", err.msg);
    return g;
}

static struct weights *open_weights(const struct gguf *g)
{
    struct weights *w = NULL;
    struct mc_err err = {0};
    if (weights_open(g, &w, &err) != MC_OK) fail_msg("%s", err.msg);
    return w;
}

/* Every tensor equals what plain reads give; touches all the bytes behind, too. */
static void check_all(const struct gguf *g, const struct weights *w)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *got = weights_tensor(w, i);
        struct os_file *f = NULL;
        uint8_t *want = malloc((size_t)t->size_bytes);
        assert_non_null(want);
        assert_int_equal(gguf_part_file(g, t->part, &f, NULL), MC_OK);
        assert_int_equal(os_file_read_at(f, t->file_off, want, (size_t)t->size_bytes, NULL), MC_OK);
        os_file_close(f);
        assert_memory_equal(got, want, (size_t)t->size_bytes);
        free(want);
        for (size_t k = 0; k < WEIGHTS_OVERREAD_BYTES; k++) (void)*(const volatile uint8_t *)(got + t->size_bytes + k);
        assert_int_equal((uintptr_t)got % gguf_alignment(g), 0);
    }
    assert_null(weights_damaged(w));
}

static void reference_model_is_readable(void **state)
{
    (void)state;
    struct gguf *g = open_file(MC_TEST_DATA "/golden/nano-quant.gguf");
    struct weights *w = open_weights(g);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) assert_int_equal(weights_tensor_of(w, weights_tensor(w, i)), i);
    assert_int_equal(weights_tensor_of(w, &g), gguf_n_tensors(g));
    const double cached = weights_cached(w, 0, 100, 1 << 20);
    assert_true(cached >= 0 && cached <= 1);
    check_all(g, w);
    weights_close(w);
    weights_close(NULL);
    gguf_close(g);
}

/* Files whose last byte lies 0, 32, 64 ... bytes before the end of a page, whatever the size of a page (4, 16, 64 KiB), with
 * tensors of 32 bytes at the end so that more than one is near the edge. */
static void page_edges_are_readable(void **state)
{
    (void)state;
    for (size_t before = 0; before <= 128; before += 32) {
        struct image m = {0};
        img_header(&m, 5, 0);
        const uint64_t first = 65536 - 512; /* fills the file up to the four small ones */
        const size_t directory = 24 + 5 * (8 + 1 + 4 + 8 + 4 + 8);
        const uint64_t head = (directory + 31) / 32 * 32;
        const uint64_t big = first - head + 512 - 128 - before;
        img_tensor(&m, "0", QUANT_F32, big / 4, 0, 0);
        for (uint64_t i = 0; i < 4; i++) img_tensor(&m, (const char[2]){(char)('1' + i), 0}, QUANT_F32, 8, 0, big + 32 * i);
        img_pad(&m, 32);
        for (uint64_t i = 0; i < big + 128; i++) img_fill(&m, (uint8_t)(i * 7 + i / 251), 1);
        assert_int_equal(m.size, 65536 - before);
        img_save(&m, "io-edge.gguf");
        struct gguf *g = open_file("io-edge.gguf");
        struct weights *w = open_weights(g);
        check_all(g, w);
        weights_close(w);
        gguf_close(g);
        img_free(&m);
    }
    remove("io-edge.gguf");
}

static void all_parts_of_a_set_are_readable(void **state)
{
    (void)state;
    static const char *const paths[] = {"io-pair-00001-of-00002.gguf", "io-pair-00002-of-00002.gguf"};
    for (unsigned p = 0; p < 2; p++) {
        struct image m = {0};
        img_header(&m, 1, 3);
        img_kv_u16(&m, "split.no", (uint16_t)p);
        img_kv_u16(&m, "split.count", 2);
        img_kv_u16(&m, "split.tensors.count", 2);
        img_tensor(&m, p ? "b" : "a", QUANT_F32, 1024, 0, 0);
        img_pad(&m, 32);
        img_fill(&m, (uint8_t)(p + 1), 4096);
        img_save(&m, paths[p]);
        img_free(&m);
    }
    struct gguf *g = open_file(paths[1]);
    struct weights *w = open_weights(g);
    check_all(g, w);
    assert_int_equal(((const uint8_t *)weights_tensor(w, 0))[9], 1);
    assert_int_equal(((const uint8_t *)weights_tensor(w, 1))[9], 2);
    weights_close(w);

    remove(paths[0]); /* gone between reading the directory and mapping */
    struct mc_err err;
    w = NULL;
    assert_int_equal(weights_open(g, &w, &err), MC_EIO);
    assert_null(w);
    assert_says(&err, paths[0]);
    gguf_close(g);
    remove(paths[1]);
}

static void file_without_tensors_opens(void **state)
{
    (void)state;
    struct gguf *g = open_file(MC_TEST_DATA "/tokenizer/dsv4-tokenizer.gguf");
    struct weights *w = open_weights(g);
    assert_null(weights_damaged(w));
    weights_close(w);
    gguf_close(g);
}

static void image_is_not_weights(void **state)
{
    (void)state;
    struct image m = {0};
    struct gguf *g = NULL;
    struct weights *w = NULL;
    struct mc_err err;
    good(&m);
    assert_int_equal(gguf_parse((struct mc_span){m.data, m.size}, "image.gguf", &g, &err), MC_OK);
    assert_int_equal(weights_open(g, &w, &err), MC_EARG);
    assert_null(w);
    assert_says(&err, "image.gguf");
    gguf_close(g);
    img_free(&m);
}

/* Linux lets a mapped file be cut: lost bytes read as zeros and the damage is named. Windows refuses the cut. */
static void shrunk_file_is_damaged(void **state)
{
    (void)state;
    struct image m = {0};
    uint64_t sum = 0;
    img_header(&m, 1, 0);
    img_tensor(&m, "big", QUANT_F32, 1 << 18, 0, 0);
    img_pad(&m, 32);
    for (unsigned i = 0; i < 1u << 20; i++) img_fill(&m, 0x55, 1);
    img_save(&m, "io-shrunk.gguf");
    img_free(&m);
    struct gguf *g = open_file("io-shrunk.gguf");
    struct weights *w = open_weights(g);
    const uint8_t *p = weights_tensor(w, 0);
    const uint64_t size = gguf_tensor_at(g, 0)->size_bytes;
    for (uint64_t i = 0; i < size; i++) assert_int_equal(p[i], 0x55);
    assert_null(weights_damaged(w));
    FILE *f = fopen("io-shrunk.gguf", "wb");
    if (f) fclose(f);
    for (uint64_t i = 0; i < size; i++) sum += p[i];
    if (f) {
        assert_int_equal(sum, 0);
        assert_non_null(weights_damaged(w));
        assert_string_equal(weights_damaged(w), "io-shrunk.gguf");
    } else {
        assert_int_equal(sum, 0x55 * size);
        assert_null(weights_damaged(w));
    }
    weights_close(w);
    gguf_close(g);
    remove("io-shrunk.gguf");
}

/* shrunk_file_is_damaged is the first: cmocka sets its own SIGBUS handler before each test, and the one behind os_map_open is
 * installed only once. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrunk_file_is_damaged),     cmocka_unit_test(reference_model_is_readable),
        cmocka_unit_test(page_edges_are_readable),    cmocka_unit_test(all_parts_of_a_set_are_readable),
        cmocka_unit_test(file_without_tensors_opens), cmocka_unit_test(image_is_not_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
