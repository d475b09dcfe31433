/* machine_plan.c - see machine_plan.h */
#include "runtime/app/machine_plan.h"

#include "runtime/app/options.h"
#include "topology/discover.h"

#include <stdlib.h>

enum mc_code machine_plan_make(const struct app_options *o, struct machine_plan **out, struct mc_err *err)
{
    unsigned list[PLACEMENT_MAX];
    struct placement_wish wish = {.n_threads = (unsigned)opt_int(o, OPT_THREADS)};
    const char *const described = opt_text(o, OPT_TOPOLOGY);
    struct machine_plan *const p = malloc(sizeof *p);
    if (!p) return mc_fail(err, MC_ENOMEM, 0, "no memory for the machine's description");
    enum mc_code code = placement_read_pin(opt_text(o, OPT_PIN), &wish, list, err);
    if (!code && described)
        code = discover_described(described, &p->machine, err);
    else if (!code)
        discover_this_machine(&p->machine);
    if (!code) code = placement_plan(&p->machine, &wish, &p->place, err);
    if (code) {
        free(p);
        return code;
    }
    *out = p;
    return MC_OK;
}
