/* test_layout_choice.c - the measurement that chooses between a matrix's packed form and the file's layout: it measures both,
 * leaves small matrices alone, and stays inside the matrix (the sanitizers look). Which one wins is the machine's business. */
#include "kernels/cpu_flags.h"
#include "runtime/engine/layout_choice.h"
#include "tests/support/engine_fixture.h"

/* rows x 4096 weights of zero bits, which are valid blocks of every type; the contract's 64 bytes behind them. */
static struct matrix zeros(enum quant_type type, uint32_t rows, uint8_t **memory)
{
    struct matrix m = {.type = type, .k = 4096, .rows = rows, .count = 1};
    m.row_bytes = quant_row_bytes(quant_info(type), m.k);
    *memory = calloc(1, matrix_bytes(&m) + 64);
    assert_non_null(*memory);
    m.data = *memory;
    return m;
}

static void both_layouts_are_measured(void **state)
{
    (void)state;
    struct kern_table kern;
    kern_table_init(&kern, kern_cpu_flags());
    if (!kern.packed[QUANT_IQ1_S]) skip(); /* no packed forms on this CPU */
    for (unsigned n = 1; n <= 3; n++) {
        struct engine *e = fixture_engine("nano", ENGINE_FAST, "auto", n);
        uint8_t *memory;
        const struct matrix m =
            zeros(QUANT_IQ1_S, (17u << 20) / 800 / 16 * 16 + 16, &memory); /* 800 bytes a row: just above 16 MiB */
        const struct layout_speed s = layout_measure(&kern, engine_workers(e), &m);
        assert_true(s.packed > 0 && s.file > 0);
        free(memory);
        engine_close(e);
    }
}

static void small_matrices_are_not_measured(void **state)
{
    (void)state;
    struct kern_table kern;
    kern_table_init(&kern, kern_cpu_flags());
    if (!kern.packed[QUANT_IQ1_S]) skip();
    struct engine *e = fixture_engine("nano", ENGINE_FAST, "auto", 2);
    uint8_t *memory;
    const struct matrix m = zeros(QUANT_IQ1_S, 2048, &memory);
    const struct layout_speed s = layout_measure(&kern, engine_workers(e), &m);
    assert_true(s.packed == 0 && s.file == 0);
    free(memory);
    engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_layouts_are_measured),
        cmocka_unit_test(small_matrices_are_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
