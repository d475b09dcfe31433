/* sources.h - the files of a model, opened once more for positioned reads: one source a part. */
#ifndef IO_WEIGHTS_SOURCES_H
#define IO_WEIGHTS_SOURCES_H

#include "io/gguf/gguf.h"
#include "platform/os.h"

/* direct: past the file cache. *out has gguf_n_parts(g) entries. Errors: MC_EUNSUPPORTED (the file system has no direct reads),
 * MC_EIO (also: a part has another size than when g was opened), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code sources_open(const struct gguf *g, bool direct, struct os_source ***out, struct mc_err *err);
void sources_close(const struct gguf *g, struct os_source **source); /* NULL does nothing */

/* The part to measure a disk with. */
unsigned sources_largest(const struct gguf *g);

#endif
