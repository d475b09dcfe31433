/* output.c - see output.h. */
#include "runtime/app/output.h"

#include "io/gguf/gguf.h"
#include "platform/os.h"
#include "runtime/engine/engine.h"

#include <errno.h>
#include <stdio.h>

enum mc_code output_failed(int why, struct mc_err *err)
{
    return mc_fail(err, MC_EIO, why, "cannot write to standard output%s%s", why ? ": " : "", why ? strerror(why) : "");
}

enum mc_code output_flush(struct mc_err *err)
{
    errno = 0;
    const bool failed = fflush(stdout) != 0;
    return failed || ferror(stdout) ? output_failed(failed ? errno : 0, err) : MC_OK;
}

enum mc_code output_check(const char *option, const char *path, const struct engine *engine, const char *input,
                          struct mc_err *err)
{
    if (!strcmp(path, "-")) return mc_fail(err, MC_EARG, 0, "%s -: standard output carries the report; name a file", option);
    if (input && os_file_same(path, input))
        return mc_fail(err, MC_EARG, 0, "%s %s: that file is read in this run; name another", option, path);
    const struct gguf *g = engine ? engine_gguf(engine) : NULL;
    for (size_t i = 0; g && i < gguf_n_parts(g); i++)
        if (os_file_same(path, gguf_part_path(g, i)))
            return mc_fail(err, MC_EARG, 0, "%s %s: that is the model itself; name another file", option, path);
    return MC_OK;
}
