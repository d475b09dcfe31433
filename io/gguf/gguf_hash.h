/* gguf_hash.h - what a model file holds, as one number: for things that are kept for a model and must not be taken for
 * another's of the same name. */
#ifndef IO_GGUF_GGUF_HASH_H
#define IO_GGUF_GGUF_HASH_H

#include "io/gguf/gguf.h"

/* Of the sizes of all parts and bytes at even distances, the first and the last ones among them: the header with its counts,
 * and weights. Reads 256 KiB of each part. Errors: MC_EIO. */
MC_MUST_CHECK enum mc_code gguf_content_hash(const struct gguf *g, uint64_t *hash, struct mc_err *err);

/* The file in the cache folder for what is kept of this model: FOLDER/NAME-HASH.ENDING. Errors: MC_EIO (no cache folder, too
 * long a path). */
MC_MUST_CHECK enum mc_code gguf_kept_path(const struct gguf *g, const char *name, const char *ending, char *buf, size_t cap,
                                          struct mc_err *err);

#endif
