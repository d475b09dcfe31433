/* test_gguf_file.c - goal: real files open quickly and completely; split sets open from any part, and each way a set can be
 * broken is refused with the name of the file that is at fault. Method: the reference files of tests/data, and sets written
 * into the current directory. */
#include "tests/unit/io/gguf_image.h"

#include "platform/os.h"

#define GOLDEN MC_TEST_DATA "/golden/"

static struct gguf *open_good(const char *path)
{
    struct gguf *g = NULL;
    struct mc_err err = {0};
    if (gguf_open(path, &g, &err) != MC_OK) fail_msg("%s", err.msg);
    return g;
}

static void assert_refused(const char *path, enum mc_code code, const char *says, const char *says_too)
{
    struct gguf *g = NULL;
    struct mc_err err = {0};
    const enum mc_code rc = gguf_open(path, &g, &err);
    if (rc != code) fail_msg("%s: code %d, expected %d: %s", path, (int)rc, (int)code, err.msg);
    assert_null(g);
    assert_says(&err, says);
    assert_says(&err, says_too);
}

/* ---- reference files -------------------------------------------------------------------------------------------- */

static void reference_models_open(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t n_tensors;
        uint64_t d, layers;
        const char *tensor;
        enum quant_type type;
        uint64_t ne1, file_off;
    } models[] = {
        {GOLDEN "nano.gguf", 154, 128, 5, "token_embd.weight", QUANT_F16, 384, 19168},
        {GOLDEN "nano.gguf", 154, 128, 5, "blk.0.attn_q_a.weight", QUANT_Q8_0, 64, 167296},
        {MC_MODELS "/tiny-dsv4.gguf", 126, 256, 4, "output.weight", QUANT_Q6_K, 2048, 7147552},
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct gguf *g = open_good(models[i].path);
        uint64_t n = 0;
        struct mc_span arch;
        struct mc_err err;
        assert_int_equal(gguf_n_tensors(g), models[i].n_tensors);
        assert_int_equal(gguf_get_string(g, "general.architecture", &arch, &err), MC_OK);
        assert_true(span_is(arch, "deepseek4"));
        assert_int_equal(gguf_get_u64(g, "deepseek4.embedding_length", &n, &err), MC_OK);
        assert_int_equal(n, models[i].d);
        assert_int_equal(gguf_get_u64(g, "deepseek4.block_count", &n, &err), MC_OK);
        assert_int_equal(n, models[i].layers);
        const struct gguf_tensor *t = gguf_tensor_find(g, models[i].tensor);
        assert_non_null(t);
        assert_int_equal(t->type, models[i].type);
        assert_int_equal(t->ne[1], models[i].ne1);
        assert_int_equal(t->file_off, models[i].file_off);
        for (size_t k = 0; k < gguf_n_tensors(g); k++) {
            const struct gguf_tensor *u = gguf_tensor_at(g, k);
            assert_true(u->file_off + u->size_bytes <= gguf_part_size(g, u->part));
        }
        gguf_close(g);
    }
    gguf_close(open_good(GOLDEN "nano-f16.gguf"));
    gguf_close(open_good(GOLDEN "nano-quant.gguf"));
}

/* 5 MB of metadata: the first read does not hold it. A second is two orders of magnitude more than it takes. */
static void large_vocabulary_opens_fast(void **state)
{
    (void)state;
    const uint64_t start = os_clock_ns();
    struct gguf *g = open_good(MC_TEST_DATA "/tokenizer/dsv4-tokenizer.gguf");
    const uint64_t took = os_clock_ns() - start;
    print_message("129280 tokens: %u us\n", (unsigned)(took / 1000));
    assert_true(took < 1000000000);
    const struct gguf_value *v = gguf_find(g, "tokenizer.ggml.tokens");
    assert_non_null(v);
    assert_int_equal(v->count, 129280);
    struct mc_span s;
    size_t pos = 0, n = 0, bytes = 0;
    for (; gguf_next_string(v, &pos, &s); n++) bytes += s.size;
    assert_int_equal(n, 129280);
    assert_int_equal(bytes + 8 * n, v->data.size);
    assert_int_equal(gguf_find(g, "tokenizer.ggml.merges")->count, 127741);
    assert_int_equal(gguf_n_tensors(g), 0);
    gguf_close(g);
}

static void strange_paths_are_refused(void **state)
{
    (void)state;
    assert_refused("io-no-such-file.gguf", MC_EIO, "io-no-such-file.gguf", "");
    assert_refused(MC_TEST_DATA "/golden", MC_EIO, "golden", "");
    remove("io-pipe.gguf");
    if (system("mkfifo io-pipe.gguf") == 0) assert_refused("io-pipe.gguf", MC_EIO, "io-pipe.gguf", "pipe");
    remove("io-pipe.gguf");
}

/* Metadata that would fill memory: refused where the limit is, after reading no more than the limit. The file is sparse. */
static void endless_metadata_is_refused(void **state)
{
    (void)state;
    struct image m = {0};
    img_header(&m, 0, 1);
    img_array(&m, "endless", GGUF_U8, 300u << 20);
    img_save(&m, "io-endless.gguf");
    FILE *f = fopen("io-endless.gguf", "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 301l << 20, SEEK_SET), 0);
    assert_int_equal(fputc(0, f), 0);
    fclose(f);
    assert_refused("io-endless.gguf", MC_EUNSUPPORTED, "io-endless.gguf", "metadata takes more than");
    remove("io-endless.gguf");
    img_free(&m);
}

/* Between two reads or between reading and mapping the file may change. */
static void changed_file_is_noticed(void **state)
{
    (void)state;
    struct image m = {0};
    struct mc_err err;
    struct os_file *f = NULL;
    good(&m);
    img_save(&m, "io-changed.gguf");
    struct gguf *g = open_good("io-changed.gguf");
    assert_int_equal(gguf_part_file(g, 0, &f, &err), MC_OK);
    os_file_close(f);
    f = NULL;
    m.size -= 32;
    img_save(&m, "io-changed.gguf");
    assert_int_equal(gguf_part_file(g, 0, &f, &err), MC_EIO);
    assert_null(f);
    assert_says(&err, "io-changed.gguf: it has");
    gguf_close(g);
    remove("io-changed.gguf");
    img_free(&m);
}

/* ---- split sets ------------------------------------------------------------------------------------------------- */

enum { N_PARTS = 3 };

static const char *const part_paths[N_PARTS] = {"io-set-00001-of-00003.gguf", "io-set-00002-of-00003.gguf",
                                                "io-set-00003-of-00003.gguf"};

/* What a part says; the defaults are those of part_no in a good set of three with 0, 2 and 1 tensors. */
struct part {
    const char *arch;     /* NULL: not repeated in this part */
    int no, count, total; /* -1: key absent */
    const char *tensors[3];
    unsigned n_tensors;
};

static struct part part_default(int no)
{
    struct part p = {no ? NULL : "deepseek4", no, N_PARTS, 3, {0}, 0};
    if (no == 1) p.tensors[p.n_tensors++] = "blk.0.a", p.tensors[p.n_tensors++] = "blk.0.b";
    if (no == 2) p.tensors[p.n_tensors++] = "blk.1.a";
    return p;
}

static void part_write(const struct part *p, struct image *m)
{
    const unsigned n_values = (p->arch ? 2u : 0u) + (p->no >= 0) + (p->count >= 0) + (p->total >= 0);
    img_header(m, p->n_tensors, n_values);
    if (p->arch) img_kv_text(m, "general.architecture", p->arch);
    if (p->arch) img_kv_text(m, "general.name", "set");
    if (p->no >= 0) img_kv_u16(m, "split.no", (uint16_t)p->no);
    if (p->count >= 0) img_kv_u16(m, "split.count", (uint16_t)p->count);
    if (p->total >= 0) {
        img_key(m, "split.tensors.count", GGUF_I32);
        img_u32(m, (uint32_t)p->total);
    }
    for (unsigned i = 0; i < p->n_tensors; i++) img_tensor(m, p->tensors[i], QUANT_F32, 8, 0, 32ull * i);
    img_pad(m, 32);
    for (unsigned i = 0; i < p->n_tensors; i++) img_fill(m, (uint8_t)(16 * p->no + (int)i), 32);
}

static void part_save(const struct part *p, const char *path)
{
    struct image m = {0};
    part_write(p, &m);
    img_save(&m, path);
    img_free(&m);
}

/* A good set on disk before each test of this section, none behind it. */
static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++) {
        const struct part p = part_default(i);
        part_save(&p, part_paths[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++) remove(part_paths[i]);
    return 0;
}

/* The set must fail whichever part is named. */
static void assert_set_refused(enum mc_code code, const char *says, const char *says_too)
{
    for (int i = 0; i < N_PARTS; i++)
        if (os_file_exists(part_paths[i])) assert_refused(part_paths[i], code, says, says_too);
}

static void set_opens_from_any_part(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++) {
        struct gguf *g = open_good(part_paths[i]);
        struct mc_span arch;
        assert_string_equal(gguf_path(g), part_paths[i]);
        assert_int_equal(gguf_n_parts(g), N_PARTS);
        for (int k = 0; k < N_PARTS; k++) assert_string_equal(gguf_part_path(g, (size_t)k), part_paths[k]);
        assert_int_equal(gguf_get_string(g, "general.architecture", &arch, NULL), MC_OK);
        assert_true(span_is(arch, "deepseek4"));
        assert_int_equal(gguf_n_tensors(g), 3);
        assert_int_equal(gguf_tensor_find(g, "blk.0.b")->part, 1);
        assert_int_equal(gguf_tensor_find(g, "blk.1.a")->part, 2);
        gguf_close(g);
    }
}

static void part_is_missing(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++) {
        remove(part_paths[i]);
        assert_set_refused(MC_EIO, part_paths[i], "is missing");
        const struct part p = part_default(i);
        part_save(&p, part_paths[i]);
    }
}

static void part_is_cut_by_one_byte(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++) {
        const struct part p = part_default(i);
        struct image m = {0};
        part_write(&p, &m);
        m.size--;
        img_save(&m, part_paths[i]);
        assert_set_refused(MC_EFORMAT, part_paths[i], "cut off");
        m.size++;
        img_save(&m, part_paths[i]);
        img_free(&m);
    }
}

static void parts_are_joined(void **state)
{
    (void)state;
    struct image m = {0};
    for (int i = 0; i < N_PARTS; i++) {
        const struct part p = part_default(i);
        part_write(&p, &m);
    }
    img_save(&m, part_paths[0]);
    assert_refused(part_paths[0], MC_EFORMAT, "another GGUF file begins there", "separate files");
    img_free(&m);
}

/* One part is replaced by one that says something else. */
static void assert_part_refused(const struct part *p, int at, const char *says)
{
    const struct part again = part_default(at);
    part_save(p, part_paths[at]);
    assert_refused(part_paths[at == 0 ? 1 : 0], MC_EFORMAT, part_paths[at], says);
    part_save(&again, part_paths[at]);
}

static void part_is_of_another_model(void **state)
{
    (void)state;
    struct part p = part_default(1);
    p.arch = "llama";
    assert_part_refused(&p, 1, "'general.architecture' differs from part 1");
    p = part_default(1);
    p.arch = "deepseek4"; /* says the same: fine */
    part_save(&p, part_paths[1]);
    gguf_close(open_good(part_paths[2]));
    p = part_default(1);
    p.total = 4;
    assert_part_refused(&p, 1, "'split.tensors.count' differs from part 1");
    p = part_default(1);
    p.no = 2;
    assert_part_refused(&p, 1, "part 3 of 3 (split.no, split.count), expected part 2 of 3");
    p = part_default(2);
    p.count = 4;
    assert_part_refused(&p, 2, "part 3 of 4 (split.no, split.count), expected part 3 of 3");
    p = part_default(0);
    p.no = 1;
    assert_part_refused(&p, 0, "part 2 of 3");
    p = part_default(2);
    p.count = -1;
    assert_part_refused(&p, 2, "expected part 3 of 3");
}

static void part_numbers_are_missing(void **state)
{
    (void)state;
    struct part p = part_default(1);
    p.no = -1;
    part_save(&p, part_paths[1]);
    assert_set_refused(MC_EFORMAT, part_paths[1], "'split.no' is missing");
    p = part_default(1);
    p.total = -1;
    part_save(&p, part_paths[1]);
    assert_set_refused(MC_EFORMAT, part_paths[1], "'split.tensors.count' is missing");
    p = part_default(1);
    p.no = 3;
    part_save(&p, part_paths[1]);
    assert_set_refused(MC_EFORMAT, part_paths[1], "'split.no' is 3, expected less than split.count, 3");
}

static void tensors_do_not_add_up(void **state)
{
    (void)state;
    struct part p = part_default(2);
    p.n_tensors = 0;
    part_save(&p, part_paths[2]);
    assert_set_refused(MC_EFORMAT, "io-set-0000", "hold 2 tensors, expected 3");
    p = part_default(2);
    p.tensors[0] = "blk.0.b";
    part_save(&p, part_paths[2]);
    assert_set_refused(MC_EFORMAT, part_paths[2], "tensor 'blk.0.b' appears twice");
}

static void part_has_a_wrong_name(void **state)
{
    (void)state;
    static const char *const names[] = {"io-renamed.gguf", "io-set-00002-of-00004.gguf", "io-set-00001-of-00003.bin",
                                        "io-set-0000x-of-00003.gguf", "io-set-00003-of-00003.gguf"};
    const struct part p = part_default(1);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        part_save(&p, names[i]);
        assert_refused(names[i], MC_EFORMAT, names[i], "must end in -00002-of-00003.gguf");
        remove(names[i]);
    }
}

/* Tools that merge a set leave split.count 0 and part 1's other numbers behind; a set of one is a plain file too. */
static void merged_file_is_a_plain_file(void **state)
{
    (void)state;
    struct part p = part_default(0);
    p.tensors[p.n_tensors++] = "blk.0.a";
    for (p.count = 0; p.count <= 1; p.count++) {
        part_save(&p, "io-merged.gguf");
        struct gguf *g = open_good("io-merged.gguf");
        assert_int_equal(gguf_n_parts(g), 1);
        assert_int_equal(gguf_n_tensors(g), 1);
        gguf_close(g);
    }
    remove("io-merged.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_models_open),
        cmocka_unit_test(large_vocabulary_opens_fast),
        cmocka_unit_test(strange_paths_are_refused),
        cmocka_unit_test(endless_metadata_is_refused),
        cmocka_unit_test(changed_file_is_noticed),
        cmocka_unit_test_setup_teardown(set_opens_from_any_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(part_is_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(part_is_cut_by_one_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_are_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(part_is_of_another_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(part_numbers_are_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tensors_do_not_add_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(part_has_a_wrong_name, set_up, tear_down),
        cmocka_unit_test(merged_file_is_a_plain_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
