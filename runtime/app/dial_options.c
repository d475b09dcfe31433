/* dial_options.c - see dial_options.h. */
#include "runtime/app/dial_options.h"

#include "runtime/app/commands.h"
#include "runtime/app/numbers.h"
#include "runtime/app/options.h"
#include "runtime/engine/engine.h"

#include <stdio.h>
#include <string.h>

bool dial_options_rows_exps(const struct app_options *o)
{
    return opt_int(o, OPT_SWIGLU_EXPS) > 0;
}

bool dial_options_rows_shexp(const struct app_options *o)
{
    return opt_int(o, OPT_SWIGLU_SHEXP) > 0;
}

static enum mc_code read_rescale(const char *text, struct moe_settings *s, struct mc_err *err)
{
    static const char *const modes[] = {"none", "l2", "l1"};
    double rho;
    for (uint32_t i = 0; i < 3; i++)
        if (!strcmp(text, modes[i])) {
            s->rescale = i;
            return MC_OK;
        }
    if (strncmp(text, "rho=", 4) != 0 || !number_f64(text + 4, 0, 1, &rho) || !(rho < 1))
        return mc_fail(err, MC_EARG, 0, "--moe-rescale: '%s' is none of none, l1, l2, rho=R with 0 <= R < 1", text);
    s->rescale = MOE_RESCALE_RHO;
    s->rho = (float)rho;
    return MC_OK;
}

static enum mc_code read_band(const char *text, struct moe_settings *s, struct mc_err *err)
{
    char first[16];
    int64_t a, b;
    const char *colon = strchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : sizeof first;
    if (n < sizeof first) {
        memcpy(first, text, n);
        first[n] = '\0';
        if (number_i64(first, 0, INT32_MAX, &a) && number_i64(colon + 1, a, INT32_MAX, &b)) {
            s->band_first = (uint32_t)a;
            s->band_end = (uint32_t)b;
            return MC_OK;
        }
    }
    return mc_fail(err, MC_EARG, 0, "--moe-band: '%s' is not FIRST:END, two layer numbers in order (END is one past the last)",
                   text);
}

/* The options over the defaults of a model. */
static enum mc_code read_options(const struct app_options *o, const struct settings_limits *m, struct moe_settings *s,
                                 struct mc_err *err)
{
    const bool whole_text = (o->command & (CMD_LOGITS | CMD_PPL | CMD_DIALS)) != 0;
    *s = settings_lossless(m);
    if (opt_is_set(o, OPT_MOE_TOP_K)) s->top_k = s->inner_k = (uint32_t)opt_int(o, OPT_MOE_TOP_K);
    if (opt_is_set(o, OPT_MOE_INNER_K)) s->inner_k = (uint32_t)opt_int(o, OPT_MOE_INNER_K);
    s->min_weight = (float)opt_num(o, OPT_MOE_MIN_WEIGHT);
    s->rows_exps = (uint32_t)opt_int(o, OPT_SWIGLU_EXPS) % SETTINGS_STRATUM;
    s->rows_shexp = (uint32_t)opt_int(o, OPT_SWIGLU_SHEXP) % SETTINGS_STRATUM;
    s->scope = opt_int(o, OPT_MOE_SCOPE) || whole_text ? MOE_SCOPE_ALL : MOE_SCOPE_DECODE;
    if (whole_text && o->value[OPT_MOE_SCOPE].source == OPT_FROM_LINE && opt_int(o, OPT_MOE_SCOPE) == 0)
        return mc_fail(err, MC_EARG, 0, "--moe-scope decode: %s evaluates whole texts, where the settings would have no effect",
                       o->command_name);
    enum mc_code code = read_rescale(opt_text(o, OPT_MOE_RESCALE), s, err);
    if (!code && opt_is_set(o, OPT_MOE_BAND)) code = read_band(opt_text(o, OPT_MOE_BAND), s, err);
    return code;
}

enum mc_code dial_options_check(const struct app_options *o, struct mc_err *err)
{
    const struct settings_limits any = {MODEL_LAYERS_MAX, 0, MODEL_USED_MAX};
    struct moe_settings s;
    return read_options(o, &any, &s, err);
}

/* The option that sets a key: its name with dashes. */
static enum mc_code refuse(const struct settings_fault *fault, struct mc_err *err)
{
    char name[32];
    size_t n = 0;
    for (; fault->key[n] && n + 1 < sizeof name; n++) name[n] = fault->key[n] == '_' ? '-' : fault->key[n];
    name[n] = '\0';
    return mc_fail(err, MC_EARG, 0, "--%s %s (this model's limits)", name, fault->text);
}

enum mc_code dial_options_apply(const struct app_options *o, struct engine *engine, struct mc_err *err)
{
    struct settings_box *box = engine_settings(engine);
    const struct settings_limits *limits = settings_box_limits(box);
    struct moe_settings s;
    struct settings_fault fault;
    const enum mc_code code = read_options(o, limits, &s, err);
    if (code) return code;
    if (!settings_valid(&s, limits, &fault)) return refuse(&fault, err);
    (void)settings_box_set(box, &s, SETTINGS_START, 0);
    if (!settings_lossy(&s, limits) || opt_flag(o, OPT_QUIET)) return MC_OK;
    char text[200];
    settings_describe(&s, limits, text, sizeof text);
    fprintf(stderr, "modchip: lossy settings: %s\n", text);
    if (settings_box_note(box, &s, text, sizeof text)) fprintf(stderr, "modchip: %s\n", text);
    return MC_OK;
}
