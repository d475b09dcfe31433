/* sources.c - see sources.h */
#include "io/weights/sources.h"

#include <stdlib.h>

void sources_close(const struct gguf *g, struct os_source **source)
{
    for (size_t p = 0; source && p < gguf_n_parts(g); p++) os_source_close(source[p]);
    free(source);
}

enum mc_code sources_open(const struct gguf *g, bool direct, struct os_source ***out, struct mc_err *err)
{
    struct os_source **const source = calloc(gguf_n_parts(g), sizeof *source);
    enum mc_code code = source ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "no memory to read weights");
    for (size_t p = 0; !code && p < gguf_n_parts(g); p++) {
        struct os_file *f = NULL;
        code = gguf_part_file(g, p, &f, err);
        if (code) break;
        if (os_file_size(f) != gguf_part_size(g, p))
            code = mc_fail(err, MC_EIO, 0, "%s: its size changes while it is opened", os_file_path(f));
        if (!code) code = os_source_open(f, direct, &source[p], err);
        os_file_close(f);
    }
    if (code)
        sources_close(g, source);
    else
        *out = source;
    return code;
}

unsigned sources_largest(const struct gguf *g)
{
    unsigned best = 0;
    for (unsigned p = 1; p < gguf_n_parts(g); p++)
        if (gguf_part_size(g, p) > gguf_part_size(g, best)) best = p;
    return best;
}
