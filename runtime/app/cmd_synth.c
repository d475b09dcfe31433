/* cmd_synth.c - `modchip synth`: a random but valid model for tests and benchmarks. The work is in synth_*.c. */
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "runtime/app/synth.h"

#include <stdio.h>

enum mc_code cmd_synth(const struct app_options *o, struct mc_err *err)
{
    const char *path = o->n_args ? o->args[0] : opt_text(o, OPT_OUTPUT);
    if (!path) return mc_fail(err, MC_EARG, 0, "synth needs the name of the file to write");
    if (o->n_args && opt_is_set(o, OPT_OUTPUT)) return mc_fail(err, MC_EARG, 0, "both -o and '%s' name a file", path);
    struct synth_config c;
    struct synth_report r;
    enum mc_code code = output_check("-o", path, NULL, NULL, err);
    if (!code) code = synth_config(o, &c, err);
    if (!code) code = synth_write(&c, path, opt_flag(o, OPT_QUIET), &r, err);
    if (code) return code;
    if (opt_flag(o, OPT_JSON)) {
        struct json_out j;
        json_out_init(&j);
        json_out_object(&j, NULL);
        json_out_text(&j, "file", path);
        json_out_uint(&j, "bytes", r.bytes);
        json_out_num(&j, "seconds", r.seconds);
        json_out_object_end(&j);
        code = json_out_finish(&j, err);
    } else {
        printf("%s: %.1f MB in %.1f s\n", path, (double)r.bytes * 1e-6, r.seconds);
    }
    return code;
}
