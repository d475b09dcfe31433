/* kl_file.h - logits of the scored positions of a text, kept between two runs of ppl.
 *
 *   | "MCLOGITS" | version | vocabulary | window | stride | windows | scored | hash of the ids | rows of float32 ... |
 *     8 bytes      u32       u32          u32      u32      u32       u32      u64               windows x scored x vocabulary
 *
 * All little-endian. A comparison makes sense only for the same text, cut the same way: the header says so and is checked. */
#ifndef RUNTIME_APP_KL_FILE_H
#define RUNTIME_APP_KL_FILE_H

#include "platform/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct kl_layout {
    uint32_t n_vocab, chunk, stride, n_windows, n_scored; /* scored positions of one window */
    uint64_t ids_hash;
};

struct kl_writer;
MC_MUST_CHECK enum mc_code kl_writer_create(const char *path, const struct kl_layout *l, struct kl_writer **out,
                                            struct mc_err *err);
MC_MUST_CHECK enum mc_code kl_writer_add(struct kl_writer *w, const float *logits, struct mc_err *err);
/* Both free w; NULL does nothing. abort leaves no file. */
MC_MUST_CHECK enum mc_code kl_writer_finish(struct kl_writer *w, struct mc_err *err);
void kl_writer_abort(struct kl_writer *w);

struct kl_reader;
/* MC_EARG naming the first field that differs from *want, or saying that this is no such file. */
MC_MUST_CHECK enum mc_code kl_reader_open(const char *path, const struct kl_layout *want, struct kl_reader **out,
                                          struct mc_err *err);
/* The next row, valid until the next call. Errors: MC_EIO, MC_EARG (a value that is no number). */
MC_MUST_CHECK enum mc_code kl_reader_next(struct kl_reader *r, const float **logits, struct mc_err *err);
void kl_reader_close(struct kl_reader *r);

#endif
