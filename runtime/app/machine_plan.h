/* machine_plan.h - the machine and the placement that the options ask for, for the commands that look at them without a model.
 */
#ifndef RUNTIME_APP_MACHINE_PLAN_H
#define RUNTIME_APP_MACHINE_PLAN_H

#include "topology/placement.h"

struct app_options;

struct machine_plan {
    struct machine machine;
    struct placement place;
};

/* This machine, or the one of --topology; workers by -t and --pin. *out is to be freed.
 * Errors: MC_EARG, MC_EFORMAT (a description that cannot be read: the command line is wrong), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code machine_plan_make(const struct app_options *o, struct machine_plan **out, struct mc_err *err);

#endif
