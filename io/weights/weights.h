/* weights.h - a tensor of an open GGUF as readable bytes.
 *
 * The files are mapped: the system brings pages in on first touch and may drop them again. intake.h reads them in other ways,
 * into memory of the caller. */
#ifndef IO_WEIGHTS_WEIGHTS_H
#define IO_WEIGHTS_WEIGHTS_H

#include "io/gguf/gguf.h"

/* Ways of reading (intake.h). */
enum weights_io { WEIGHTS_AUTO, WEIGHTS_MMAP, WEIGHTS_URING, WEIGHTS_PREAD, WEIGHTS_IO_COUNT };

/* Bytes behind the end of every tensor that may be read too (their content is anything): kernels load whole vectors. */
#define WEIGHTS_OVERREAD_BYTES 64u

struct weights;

/* Makes all tensors of g readable. g must outlive the result. Reads nothing but a last tensor that ends at the
 * very end of a page.
 * Errors: MC_EIO (a file is gone, unreadable or has another size than when g was opened), MC_ENOMEM, MC_EARG (g is from
 * memory). */
MC_MUST_CHECK enum mc_code weights_open(const struct gguf *g, struct weights **out, struct mc_err *err);
void weights_close(struct weights *w);

const char *weights_io_name(enum weights_io io);

/* The size_bytes of tensor tensor_idx (as of gguf_tensor_at) and WEIGHTS_OVERREAD_BYTES more; never written, valid on all
 * threads until weights_close. Alignment: that of the file's offsets (gguf_alignment; 32 as a rule, at least 8), not that of
 * pages. */
const void *weights_tensor(const struct weights *w, size_t tensor_idx);

/* The tensor whose bytes begin at `data`; gguf_n_tensors when there is none. */
size_t weights_tensor_of(const struct weights *w, const void *data);

/* Share of `size` bytes at `off` of a part that the system's cache holds, 0..1; 0 where it does not tell. */
double weights_cached(const struct weights *w, unsigned part, uint64_t off, uint64_t size);

/* NULL while all is well; else the path of a file that shrank or whose disk failed: lost bytes read as zeros, so results since
 * then are worthless. Cheap enough to ask after every token. Threads: any. */
const char *weights_damaged(const struct weights *w);

/* These bytes of a tensor will not be read soon (they were copied elsewhere): their pages leave the process. Never fails. */
void weights_not_needed(const struct weights *w, const void *data, uint64_t size);

/* The same, and the system's file cache need not keep them: for whoever promised not to fill memory with it. */
void weights_forget(const struct weights *w, const void *data, uint64_t size);
void weights_forget_all(const struct weights *w);

/* Asks the system to bring these bytes of a tensor in soon. Never waits, never fails. */
void weights_will_need(const struct weights *w, const void *data, uint64_t size);

#endif
