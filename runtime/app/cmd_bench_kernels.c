/* cmd_bench_kernels.c - `modchip bench kernels`: kernels/check, printed. A kernel that differs from its scalar twin makes it
 * fail. */
#include "kernels/check/checkkern.h"
#include "kernels/cpu_flags.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/options.h"

#include <stdio.h>

struct table {
    bool json;
    size_t n_rows;
    struct json_out rows;
};

static void on_row(void *user, const struct check_row *r)
{
    struct table *t = user;
    const bool first = !t->n_rows++;
    if (t->json) {
        struct json_out *j = &t->rows;
        json_out_object(j, NULL);
        json_out_text(j, "kernel", r->kernel);
        json_out_text(j, "isa", r->isa);
        json_out_bool(j, "ok", r->ok);
        if (!r->ok) json_out_text(j, "detail", r->detail);
        json_out_num(j, "weights_per_cycle", r->weights_per_cycle);
        if (r->products_per_cycle8 > 0) json_out_num(j, "products_per_cycle_8_columns", r->products_per_cycle8);
        json_out_num(j, "gb_s", r->gb_s);
        json_out_num(j, "speedup", r->speedup);
        json_out_object_end(j);
        return;
    }
    if (first) printf("%-22s %-10s %-4s %9s %9s %9s %8s\n", "kernel", "isa", "", "w/cycle", "8 columns", "GB/s", "speedup");
    printf("%-22s %-10s %-4s %9.2f %9.2f %9.2f %8.2f\n", r->kernel, r->isa, r->ok ? "ok" : "BAD", r->weights_per_cycle,
           r->products_per_cycle8, r->gb_s, r->speedup);
    if (!r->ok) printf("    %s\n", r->detail);
    fflush(stdout); /* the whole table takes a while */
}

static bool interrupted(void *user)
{
    (void)user;
    return os_interrupted();
}

enum mc_code cmd_bench_kernels(const struct app_options *o, struct mc_err *err)
{
    struct check_options co = {.only = o->n_args ? o->args[0] : NULL, .seed = 1, .bench = true, .stop = interrupted};
    if (kern_isa_flags(opt_text(o, OPT_ISA), &co.cpu_flags))
        return mc_fail(err, MC_EARG, 0, "--isa %s: this CPU does not have it", opt_text(o, OPT_ISA));
    struct table t = {.json = opt_flag(o, OPT_JSON)};
    json_out_init(&t.rows);
    json_out_array(&t.rows, NULL);
    size_t n_failed = 0;
    enum mc_code code = check_run(&co, on_row, &t, &n_failed, err);
    json_out_array_end(&t.rows);
    if (!code && !t.n_rows) code = mc_fail(err, MC_EARG, 0, "no kernel's name holds '%s'", co.only ? co.only : "");
    if (!code && t.json) {
        struct json_out j;
        json_out_init(&j);
        json_out_object(&j, NULL);
        json_out_splice(&j, "kernels", &t.rows);
        json_out_uint(&j, "failed", n_failed);
        json_out_object_end(&j);
        code = json_out_print(&j, err);
        json_out_deinit(&j);
    }
    json_out_deinit(&t.rows);
    if (!code && n_failed) code = mc_fail(err, MC_EFORMAT, 0, "%zu kernels differ from their scalar twin", n_failed);
    return code;
}
