/* gguf_dir.h - private to io/gguf: the directory of one file, and the object behind gguf.h.
 *
 *   file:  | header | metadata | tensor directory | pad | tensor | pad | tensor | pad |
 *          0                                meta_end    data_off              data_end
 *
 * gguf_parse.c fills a gguf_dir from bytes and knows nothing of files; gguf_file.c brings the bytes and joins the parts of a
 * split set; gguf_index.c finds names; gguf_value.c reads values. */
#ifndef IO_GGUF_GGUF_DIR_H
#define IO_GGUF_GGUF_DIR_H

#include "io/gguf/gguf.h"

/* Stated limits. A published trunk has about 60 keys, 1328 tensors and 10 MiB of metadata. */
#define GGUF_KEYS_MAX     65536u
#define GGUF_TENSORS_MAX  65536u
#define GGUF_NAME_MAX     65535u /* bytes of a key or tensor name; the format's own limit for keys */
#define GGUF_META_MAX     ((uint64_t)256 << 20)
#define GGUF_HEADER_BYTES 24u

/* Names of an array of structs whose first member is a struct mc_span. Open addressing, at most half full. */
struct gguf_index {
    uint32_t *slots; /* index + 1, 0 is empty */
    size_t mask;
    const void *items;
    size_t stride;
};

#define GGUF_NONE SIZE_MAX

/* *dup gets the later one of two items with one name, else GGUF_NONE. MC_ENOMEM only. items must outlive the index. */
MC_MUST_CHECK enum mc_code gguf_index_build(struct gguf_index *ix, const void *items, size_t stride, size_t n, size_t *dup,
                                            struct mc_err *err);
void gguf_index_free(struct gguf_index *ix);
size_t gguf_index_find(const struct gguf_index *ix, struct mc_span name); /* GGUF_NONE if absent */

/* What one file says. All spans point into the metadata bytes the parser was given. */
struct gguf_dir {
    const char *path; /* borrowed, for messages */
    uint64_t file_size;
    uint64_t meta_end;
    uint64_t data_off;
    uint64_t data_end; /* end of the last tensor, or meta_end without tensors */
    uint32_t alignment;
    struct gguf_value *values;
    size_t n_values;
    struct gguf_index by_key;
    struct gguf_tensor *tensors; /* in the order of the directory; part is 0 */
    size_t n_tensors;
};

/* Reads the directory of a file of file_size bytes from its first bytes.size bytes and checks all of it, duplicate tensor names
 * excepted (they are looked for across parts). MC_EBUSY: *need bytes (> bytes.size, <= file_size) must be there to go on.
 * After any result other than MC_OK *dir holds nothing. */
MC_MUST_CHECK enum mc_code gguf_dir_parse(struct gguf_dir *dir, struct mc_span bytes, uint64_t file_size, const char *path,
                                          uint64_t *need, struct mc_err *err);
void gguf_dir_free(struct gguf_dir *dir);

/* The end of the path that still leaves room for a sentence in mc_err. */
const char *gguf_path_tail(const char *path);
/* For "%.*s": hostile names are long. */
static inline int gguf_shown(struct mc_span s)
{
    return s.size < 100 ? (int)s.size : 100;
}
static inline const char *gguf_text(struct mc_span s)
{
    return (const char *)s.data;
}

/* An integer of any type that is >= 0; false for other types and negative values. */
bool gguf_value_u64(const struct gguf_value *v, uint64_t *out);
/* NULL if absent. */
const struct gguf_value *gguf_dir_find(const struct gguf_dir *dir, const char *key);

struct gguf_part {
    char *path;
    uint8_t *meta; /* owned; NULL when parsed from memory */
    struct gguf_dir dir;
};

struct gguf {
    char *path; /* as named by the caller */
    struct gguf_part *parts;
    size_t n_parts;
    struct gguf_tensor *tensors; /* of all parts */
    size_t n_tensors;
    struct gguf_index by_name;
    bool in_memory;
};

#endif
