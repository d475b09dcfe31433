/* gguf.h - what a GGUF v3 file (or split set) says, checked before it is believed.
 *
 * spec of the format: little-endian header, metadata, tensor directory, aligned data section. Every count, length, offset,
 * type and shape comes from outside and is checked with checked arithmetic; a bad file gives one line that names the file, the
 * key or tensor, what was found and what was expected. Nothing here knows what a tensor means to the model. */
#ifndef IO_GGUF_GGUF_H
#define IO_GGUF_GGUF_H

#include "kernels/quant/types.h"
#include "platform/base/bytes.h"
#include "platform/base/err.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

/* One metadata entry. All spans borrow the metadata bytes that the gguf object owns. */
struct gguf_value {
    struct mc_span key;
    enum gguf_type type;
    enum gguf_type item_type; /* of an array's elements; arrays of arrays are refused */
    uint64_t count;           /* elements of an array, else 1 */
    struct mc_span data;      /* scalar: its bytes; string: its text; array: the packed elements */
};

struct gguf_tensor {
    struct mc_span name; /* as stored; aliases are the business of the binder */
    enum quant_type type;
    unsigned n_dims;     /* 1..4 */
    uint64_t ne[4];      /* ne[0] contiguous; unused entries are 1; none is 0 */
    unsigned part;       /* index of the file in a split set */
    uint64_t file_off;   /* from the start of that file */
    uint64_t size_bytes; /* rows * row bytes; fits the file */
};

struct gguf;

/* Opens one file or, when `split.count` > 1, all parts of the set (any part may be named; siblings are found by the
 * name-00001-of-0000N.gguf pattern). Reads metadata with plain reads, never through a mapping. */
MC_MUST_CHECK enum mc_code gguf_open(const char *path, struct gguf **out, struct mc_err *err);
/* The same from memory, one file without split set (tests, fuzzing). `bytes` must outlive the object. */
MC_MUST_CHECK enum mc_code gguf_parse(struct mc_span bytes, const char *name, struct gguf **out, struct mc_err *err);
void gguf_close(struct gguf *g);

const char *gguf_path(const struct gguf *g); /* of the file that was named */
size_t gguf_n_parts(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, size_t part);
uint64_t gguf_part_size(const struct gguf *g, size_t part);
uint32_t gguf_alignment(const struct gguf *g);

size_t gguf_n_values(const struct gguf *g);
const struct gguf_value *gguf_value_at(const struct gguf *g, size_t i);
const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL if absent; hashed */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);
/* Opens the data of part `part` for reading or mapping; the caller closes. */
struct os_file;
MC_MUST_CHECK enum mc_code gguf_part_file(const struct gguf *g, size_t part, struct os_file **out, struct mc_err *err);

/* Typed reads. `get` fails with MC_EFORMAT when the key is missing or of a wrong type (any integer type is accepted where the
 * value fits, f32 or f64 for floats); `or` variants use the default when the key is absent but still fail on a wrong type. */
MC_MUST_CHECK enum mc_code gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t dflt, uint64_t *out,
                                           struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_get_f64(const struct gguf *g, const char *key, double *out, struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_get_f64_or(const struct gguf *g, const char *key, double dflt, double *out, struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_get_bool_or(const struct gguf *g, const char *key, bool dflt, bool *out, struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_get_string(const struct gguf *g, const char *key, struct mc_span *out, struct mc_err *err);

/* Elements of arrays (and scalars, i = 0). i < count is the caller's duty; a wrong element type gives MC_EFORMAT. */
MC_MUST_CHECK enum mc_code gguf_item_i64(const struct gguf *g, const struct gguf_value *v, uint64_t i, int64_t *out,
                                         struct mc_err *err);
MC_MUST_CHECK enum mc_code gguf_item_f64(const struct gguf *g, const struct gguf_value *v, uint64_t i, double *out,
                                         struct mc_err *err);

/* Walks an array of strings from the front; returns false at the end. *pos starts at 0. The lengths were checked on open. */
bool gguf_next_string(const struct gguf_value *v, size_t *pos, struct mc_span *out);

const char *gguf_type_name(enum gguf_type t);

#endif
