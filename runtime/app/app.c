/* app.c - from argv to an exit code. See app.h.
 *
 * An error is one line on stderr. The log callback prints warnings the same way; `--log info` shows the choices made at load.
 */
#include "runtime/app/app.h"

#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"

#include <stdio.h>
#include <stdlib.h>

enum { ENV_BYTES = 128 << 10 /* the longest that Linux allows */ };

static int exit_code(enum mc_code code)
{
    switch (code) {
    case MC_OK:
        return APP_DONE;
    case MC_EARG:
    case MC_EFULL:
        return APP_USAGE;
    case MC_ECANCELLED:
        return APP_INTERRUPTED;
    default:
        return APP_FAILED;
    }
}

static int report(enum mc_code code, const struct mc_err *err)
{
    if (code) fprintf(stderr, "modchip: %s\n", err->msg);
    return exit_code(code);
}

static void print_log(void *user, enum mc_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "modchip: %s%s\n", level == MC_LOG_ERROR ? "error: " : level == MC_LOG_WARN ? "warning: " : "", line);
}

static const char *environment(void *user, const char *name)
{
    return os_env_get(name, user, ENV_BYTES) ? user : NULL;
}

static enum mc_code print_version(struct mc_err *err)
{
    struct kern_table t;
    kern_table_init(&t, kern_cpu_flags());
    printf("modchip %s\nbuild: %s\nkernels: %s\n", MC_VERSION, MC_BUILD, t.isa);
    return output_flush(err);
}

static enum mc_code run_command(const struct app_command *cmd, int argc, char **argv, struct mc_err *err)
{
    char *buf = malloc(ENV_BYTES);
    if (!buf) return mc_fail(err, MC_ENOMEM, 0, "no memory for the environment");
    const struct opt_environment env = {environment, buf};
    struct app_options o;
    enum mc_code code = options_read(&o, cmd->bit, cmd->name, cmd->args_max, argc, argv, &env, err);
    free(buf);
    if (!code && opt_flag(&o, OPT_HELP)) {
        fputs(cmd->help, stdout);
    } else if (!code && opt_flag(&o, OPT_VERSION)) {
        code = print_version(err);
    } else if (!code) {
        mc_log_set(print_log, NULL, (enum mc_log_level)opt_int(&o, OPT_LOG));
        os_interrupt_catch();
        code = cmd->run(&o, err);
    }
    options_free(&o);
    return code;
}

static enum mc_code dispatch(int argc, char **argv, struct mc_err *err)
{
    if (argc < 2) return mc_fail(err, MC_EARG, 0, "no command (modchip --help lists them)");
    const bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"), version = !strcmp(argv[1], "--version");
    if (argc > 2 && (help || version)) return mc_fail(err, MC_EARG, 0, "unexpected argument '%s' after %s", argv[2], argv[1]);
    if (version) return print_version(err);
    if (help) {
        fputs(command_overview, stdout);
        return MC_OK;
    }
    int n_words = 0;
    const struct app_command *cmd = command_find(argc, argv, &n_words);
    if (cmd) return run_command(cmd, argc - n_words, argv + n_words, err);
    if (command_is_planned(argv[1])) return mc_fail(err, MC_EARG, 0, "%s is not in this version", argv[1]);
    return mc_fail(err, MC_EARG, 0, "unknown command '%s' (modchip --help lists them)", argv[1]);
}

int app_main(int argc, char **argv)
{
    os_console_setup();
    os_args_utf8(&argc, &argv);
    struct mc_err err;
    enum mc_code code = dispatch(argc, argv, &err);
    if (!code)
        code = output_flush(&err);
    else
        (void)fflush(stdout);
    return report(code, &err);
}
