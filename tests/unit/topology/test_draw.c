/* test_draw.c - the picture of a machine.
 *
 * Goal: each package, node, L3 group and core has its box, each worker is in the core where the plan puts it, and every line of
 * the text is as wide as its frame. Method: one small machine whose picture is written down here, the described machines by
 * counting. */
#include "topology/discover.h"
#include "topology/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char *picture(const struct machine *m, const struct placement_wish *wish, enum draw_form form)
{
    static struct placement p;
    char *text;
    size_t size;
    assert_int_equal(placement_plan(m, wish, &p, NULL), MC_OK);
    assert_int_equal(draw_picture(m, &p, form, &text, &size, NULL), MC_OK);
    assert_int_equal(strlen(text), size);
    return text;
}

/* CPUs 0, 16, 17 under one L3 (one whole core, half of another), 24 under the next. */
static struct machine holes(void)
{
    struct machine m = {.n = 4,
                        .cpu = {{.cpu = 0, .core = 0, .l3_bytes = 32 << 20},
                                {.cpu = 16, .core = 0, .l3_bytes = 32 << 20},
                                {.cpu = 17, .core = 1, .l3_bytes = 32 << 20},
                                {.cpu = 24, .core = 2, .l3 = 1, .l3_bytes = 32 << 20}}};
    machine_index(&m);
    return m;
}

static void a_small_machine(void **state)
{
    (void)state;
    const struct machine m = holes();
    char *const text = picture(&m, &(struct placement_wish){0}, DRAW_TEXT);
    assert_string_equal(text, "NUMA nodes 1, L3 groups 2, cores 3, CPUs 4; workers 3\n"
                              "+- package 0 ---------------------+\n"
                              "| +- NUMA node 0 ---------------+ |\n"
                              "| | +- L3 0, 32 MiB ----------+ | |\n"
                              "| | | +----------+----------+ | | |\n"
                              "| | | | core 0   | core 1   | | | |\n"
                              "| | | | cpu 0,16 | cpu 17   | | | |\n"
                              "| | | | w0       | w1       | | | |\n"
                              "| | | +----------+----------+ | | |\n"
                              "| | +-------------------------+ | |\n"
                              "| | +- L3 1, 32 MiB ----------+ | |\n"
                              "| | | +----------+            | | |\n"
                              "| | | | core 2   |            | | |\n"
                              "| | | | cpu 24   |            | | |\n"
                              "| | | | w2       |            | | |\n"
                              "| | | +----------+            | | |\n"
                              "| | +-------------------------+ | |\n"
                              "| +-----------------------------+ |\n"
                              "+---------------------------------+\n");
    free(text);
}

/* Occurrences of `part`. */
static unsigned count(const char *text, const char *part)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, part)); p++) n++;
    return n;
}

static void lines_end_where_the_frame_ends(const char *text)
{
    const char *line = strchr(text, '\n') + 1;
    const size_t width = strcspn(line, "\n");
    assert_true(width <= 120);
    for (; *line; line += width + 1) {
        assert_int_equal(strcspn(line, "\n"), width);
        assert_true(line[width - 1] == '|' || line[width - 1] == '+');
    }
}

static void described_machines_are_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"ryzen9-9955hx", "epyc-9654-2s-nps4", "intel-155h-lp-e-no-l3", "vm-16-sockets-of-1",
                                        "one-cpu-no-caches"};
    static struct machine m;
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        char path[1024], worker[24];
        struct mc_err err;
        snprintf(path, sizeof path, "%s/topology/%s.xml", MC_TEST_DATA, names[k]);
        const enum mc_code code = discover_described(path, &m, &err);
        if (code == MC_EUNSUPPORTED) {
            printf("skipped: %s\n", err.msg);
            return;
        }
        assert_int_equal(code, MC_OK);
        const unsigned cores = machine_count(&m, offsetof(struct os_cpu_row, core));
        static struct placement p;
        assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
        char *const text = picture(&m, &(struct placement_wish){0}, DRAW_TEXT);
        lines_end_where_the_frame_ends(text);
        assert_int_equal(count(text, "| core "), cores);
        assert_int_equal(count(text, "| w"), p.n);
        snprintf(worker, sizeof worker, "| w%u ", p.n - 1);
        assert_int_equal(count(text, worker), 1);
        free(text);
        char *const svg = picture(&m, &(struct placement_wish){0}, DRAW_SVG);
        const unsigned packages = machine_count(&m, offsetof(struct os_cpu_row, package));
        assert_int_equal(count(svg, ">core "), cores);
        assert_true(count(svg, "<rect ") >= cores + packages + m.n_groups + 1);
        assert_int_equal(count(svg, "<text "), count(svg, "</text>"));
        assert_int_equal(count(svg, "</svg>"), 1);
        assert_int_equal(count(svg, ">w"), p.n);
        free(svg);
    }
}

static void workers_that_are_not_bound_are_in_no_core(void **state)
{
    (void)state;
    const struct machine m = holes();
    char *text = picture(&m, &(struct placement_wish){.pin = PLACEMENT_PIN_OFF}, DRAW_TEXT);
    assert_int_equal(count(text, "| w"), 0);
    assert_int_equal(count(text, "not pinned"), 1);
    free(text);
    static const unsigned list[] = {24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24}; /* all in one core: cut, not spilled */
    text = picture(&m, &(struct placement_wish){.pin = PLACEMENT_PIN_LIST, .list = list, .n_list = 12}, DRAW_TEXT);
    lines_end_where_the_frame_ends(text);
    assert_int_equal(count(text, "w0 w1 w2"), 1);
    assert_int_equal(count(text, "..."), 1);
    free(text);
}

static void sizes_are_short(void **state)
{
    (void)state;
    char buf[24];
    draw_size(buf, 0);
    assert_string_equal(buf, "0 bytes");
    draw_size(buf, 48 << 10);
    assert_string_equal(buf, "48 KiB");
    draw_size(buf, (uint64_t)3 << 29);
    assert_string_equal(buf, "1.5 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_machine),
        cmocka_unit_test(described_machines_are_whole),
        cmocka_unit_test(workers_that_are_not_bound_are_in_no_core),
        cmocka_unit_test(sizes_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
