/* gguf_parse.c - bytes to directory, every claim checked before it is believed.
 *
 * The parser sees the first bytes of a file and knows how long the file is. A length or count that the rest of the file could
 * not hold is refused before anything is allocated or walked; one that only reaches past the bytes read so far gives MC_EBUSY,
 * and the caller comes back with more. It starts again from byte 0 then: the buffer doubles, so this costs one extra
 * pass in all (the 129 280-token vocabulary: 5 MB, about 5 ms a pass).
 *
 * Strings are not copied and arrays stay packed as stored. No recursion: arrays of arrays are refused.
 *
 * Tensors lie back to back, in any order in the directory but without holes: next offset - offset must be the aligned
 * size that type and shape give. This is what tells the two meanings of type 42 apart (quants.md section 1) and catches any
 * other disagreement about the size of a block. */
#include "io/gguf/gguf_dir.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEY_BYTES_MIN = 8 + 1 + 4 + 1,            /* length, one byte of name, type, one byte of value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* length, name, n_dims, one dimension, type, offset */
    STRING_BYTES_MIN = 8,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 1 << 20,
    PRIVATE_42_BYTES = 30 /* of 64 weights, where q2_0 has 18 */
};

/* Bytes of one element; 0: not of fixed size. */
static const uint8_t type_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

struct cursor {
    struct mc_span bytes; /* the part of the file that was read; pos <= bytes.size <= file_size */
    uint64_t file_size;
    uint64_t pos;
    uint64_t need; /* set with MC_EBUSY */
    const char *path;
    const char *kind;    /* "key" or "tensor" that is being read, NULL: the file itself */
    struct mc_span name; /* its name */
    struct mc_err *err;
};

const char *gguf_path_tail(const char *path)
{
    const size_t n = strlen(path);
    return n > 150 ? path + n - 150 : path;
}

static enum mc_code bad(const struct cursor *c, enum mc_code code, const char *fmt, ...) MC_PRINTF(3, 4);
static enum mc_code bad(const struct cursor *c, enum mc_code code, const char *fmt, ...)
{
    char text[232];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *path = gguf_path_tail(c->path);
    if (!c->kind) return mc_fail(c->err, code, 0, "%s: %s", path, text);
    return mc_fail(c->err, code, 0, "%s: %s '%.*s': %s", path, c->kind, gguf_shown(c->name), gguf_text(c->name), text);
}

static void subject(struct cursor *c, const char *kind, struct mc_span name)
{
    c->kind = kind;
    c->name = name;
}

static uint64_t left(const struct cursor *c)
{
    return c->file_size - c->pos;
}

/* ---- cursor ----------------------------------------------------------------------------------------------------- */

static enum mc_code take(struct cursor *c, uint64_t n, const char *what, const uint8_t **out)
{
    if (n > left(c)) {
        bad(c, MC_EFORMAT,
            "%s at byte %" PRIu64 " needs %" PRIu64 " bytes, but the file ends after %" PRIu64 " (cut off or damaged)", what,
            c->pos, n, left(c));
        return MC_EFORMAT; /* spelled out for compilers that wonder whether *out is set */
    }
    if (n > c->bytes.size - c->pos) {
        c->need = c->pos + n;
        return MC_EBUSY;
    }
    *out = c->bytes.data + c->pos;
    c->pos += n;
    return MC_OK;
}

static enum mc_code take_u32(struct cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p;
    const enum mc_code rc = take(c, 4, what, &p);
    if (rc == MC_OK) *out = mc_load_u32(p);
    return rc;
}

static enum mc_code take_u64(struct cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p;
    const enum mc_code rc = take(c, 8, what, &p);
    if (rc == MC_OK) *out = mc_load_u64(p);
    return rc;
}

static enum mc_code take_string(struct cursor *c, const char *what, struct mc_span *out)
{
    uint64_t n = 0;
    enum mc_code rc = take_u64(c, what, &n);
    if (rc == MC_OK) rc = take(c, n, what, &out->data);
    if (rc == MC_OK) out->size = (size_t)n;
    return rc;
}

/* Names are looked up and printed: not empty, and within the format's limit. */
static enum mc_code take_name(struct cursor *c, const char *kind, size_t idx, struct mc_span *out)
{
    subject(c, NULL, (struct mc_span){NULL, 0});
    const enum mc_code rc = take_string(c, kind, out);
    if (rc != MC_OK) return rc;
    if (out->size == 0) return bad(c, MC_EFORMAT, "%s number %zu has an empty name", kind, idx);
    if (out->size > GGUF_NAME_MAX)
        return bad(c, MC_EFORMAT, "%s number %zu has a name of %zu bytes, at most %u are allowed", kind, idx, out->size,
                   GGUF_NAME_MAX);
    subject(c, kind, *out);
    return MC_OK;
}

/* ---- header and metadata ---------------------------------------------------------------------------------------- */

static enum mc_code take_count(struct cursor *c, const char *what, uint64_t n, uint64_t item_bytes_min, uint64_t most)
{
    if (n > left(c) / item_bytes_min)
        return bad(c, MC_EFORMAT, "the header speaks of %" PRIu64 " %s, which %" PRIu64 " bytes cannot hold", n, what,
                   c->file_size);
    if (n > most) return bad(c, MC_EUNSUPPORTED, "%" PRIu64 " %s; at most %" PRIu64 " are read", n, what, most);
    return MC_OK;
}

static enum mc_code read_header(struct cursor *c, uint64_t *n_tensors, uint64_t *n_values)
{
    const uint8_t *p;
    if (c->file_size == 0) return bad(c, MC_EFORMAT, "the file is empty, expected a GGUF model");
    enum mc_code rc = take(c, 4, "the magic word", &p);
    if (rc != MC_OK) return rc;
    if (memcmp(p, "GGUF", 4) != 0)
        return bad(c, MC_EFORMAT,
                   "not a GGUF file: it begins with the bytes %02x %02x %02x %02x, expected 47 47 55 46 (\"GGUF\")", p[0], p[1],
                   p[2], p[3]);
    rc = take(c, GGUF_HEADER_BYTES - 4, "the header", &p);
    if (rc != MC_OK) return rc;
    const uint32_t version = mc_load_u32(p);
    if (version != 0 && (version & 0xffffff) == 0)
        return bad(c, MC_EUNSUPPORTED, "a big-endian GGUF file; only little-endian files are read: convert it first");
    if (version != 3)
        return bad(c, MC_EUNSUPPORTED, "GGUF version %" PRIu32 ", expected 3: convert the model with a current tool", version);
    *n_tensors = mc_load_u64(p + 4);
    *n_values = mc_load_u64(p + 12);
    rc = take_count(c, "metadata keys", *n_values, KEY_BYTES_MIN, GGUF_KEYS_MAX);
    if (rc == MC_OK) rc = take_count(c, "tensors", *n_tensors, TENSOR_BYTES_MIN, GGUF_TENSORS_MAX);
    return rc;
}

static enum mc_code check_bools(const struct cursor *c, struct mc_span data)
{
    for (size_t i = 0; i < data.size; i++)
        if (data.data[i] > 1)
            return bad(c, MC_EFORMAT, "element %zu of type bool is the byte %u, expected 0 or 1", i, data.data[i]);
    return MC_OK;
}

static enum mc_code read_array(struct cursor *c, struct gguf_value *v)
{
    uint32_t item = 0;
    enum mc_code rc = take_u32(c, "an array's element type", &item);
    if (rc == MC_OK) rc = take_u64(c, "an array's length", &v->count);
    if (rc != MC_OK) return rc;
    if (item == GGUF_ARRAY) return bad(c, MC_EUNSUPPORTED, "an array of arrays; only flat arrays are read");
    if (item >= GGUF_TYPE_COUNT) return bad(c, MC_EFORMAT, "array of unknown type %" PRIu32 ", expected 0 to 12", item);
    v->item_type = (enum gguf_type)item;
    const uint64_t item_bytes = item == GGUF_STRING ? STRING_BYTES_MIN : type_bytes[item];
    if (v->count > left(c) / item_bytes)
        return bad(c, MC_EFORMAT, "an array of %" PRIu64 " elements of type %s, but only %" PRIu64 " bytes follow", v->count,
                   gguf_type_name(v->item_type), left(c));
    if (item != GGUF_STRING) {
        rc = take(c, v->count * item_bytes, "array", &v->data.data);
        v->data.size = (size_t)(v->count * item_bytes);
        return rc;
    }
    const uint64_t start = c->pos;
    struct mc_span s;
    for (uint64_t i = 0; i < v->count && rc == MC_OK; i++) rc = take_string(c, "a string of the array", &s);
    v->data = (struct mc_span){c->bytes.data + start, (size_t)(c->pos - start)};
    return rc;
}

static enum mc_code read_value(struct cursor *c, size_t idx, struct gguf_value *v)
{
    uint32_t type = 0;
    enum mc_code rc = take_name(c, "key", idx, &v->key);
    if (rc == MC_OK) rc = take_u32(c, "a value's type", &type);
    if (rc != MC_OK) return rc;
    if (type >= GGUF_TYPE_COUNT) return bad(c, MC_EFORMAT, "unknown metadata type %" PRIu32 ", expected 0 to 12", type);
    v->type = v->item_type = (enum gguf_type)type;
    v->count = 1;
    if (type == GGUF_ARRAY) {
        rc = read_array(c, v);
    } else if (type == GGUF_STRING) {
        rc = take_string(c, "a string", &v->data);
    } else {
        rc = take(c, type_bytes[type], "a value", &v->data.data);
        v->data.size = type_bytes[type];
    }
    if (rc == MC_OK && v->item_type == GGUF_BOOL) rc = check_bools(c, v->data);
    return rc;
}

/* ---- tensor directory ------------------------------------------------------------------------------------------- */

static enum mc_code set_size(const struct cursor *c, uint32_t type, struct gguf_tensor *t)
{
    const struct quant_info *q = quant_info(type);
    if (!q)
        return bad(c, MC_EUNSUPPORTED, "its type number %" PRIu32 " is %s; use a file with other weight types", type,
                   quant_refusal(type));
    t->type = (enum quant_type)type;
    if (t->ne[0] % q->block_len)
        return bad(c, MC_EFORMAT, "rows of %" PRIu64 " weights, expected a multiple of %u for type %s", t->ne[0], q->block_len,
                   q->name);
    uint64_t n = t->ne[0] / q->block_len;
    bool fits = mc_mul_u64(n, q->block_bytes, &n);
    for (unsigned d = 1; d < 4 && fits; d++) fits = mc_mul_u64(n, t->ne[d], &n);
    if (!fits || n > c->file_size)
        return bad(c, MC_EFORMAT,
                   "its shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "] in type %s is larger than the file "
                   "(%" PRIu64 " bytes; cut off or damaged)",
                   t->ne[0], t->ne[1], t->ne[2], t->ne[3], q->name, c->file_size);
    t->size_bytes = n;
    return MC_OK;
}

static enum mc_code read_tensor(struct cursor *c, size_t idx, struct gguf_tensor *t)
{
    uint32_t n_dims = 0, type = 0;
    enum mc_code rc = take_name(c, "tensor", idx, &t->name);
    if (rc == MC_OK) rc = take_u32(c, "the number of dimensions", &n_dims);
    if (rc != MC_OK) return rc;
    if (n_dims < 1 || n_dims > 4) return bad(c, MC_EFORMAT, "%" PRIu32 " dimensions, expected 1 to 4", n_dims);
    t->n_dims = n_dims;
    for (unsigned d = 0; d < 4; d++) t->ne[d] = 1;
    for (unsigned d = 0; d < n_dims; d++) {
        rc = take_u64(c, "a dimension", &t->ne[d]);
        if (rc != MC_OK) return rc;
        if (t->ne[d] == 0) return bad(c, MC_EFORMAT, "dimension %u is 0, expected at least 1", d);
    }
    rc = take_u32(c, "the type", &type);
    if (rc == MC_OK) rc = take_u64(c, "the offset", &t->file_off); /* within the data section until place_tensors */
    return rc == MC_OK ? set_size(c, type, t) : rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->file_off > (*y)->file_off) - ((*x)->file_off < (*y)->file_off);
}

/* Do stored_bytes fit 30 bytes a block and not 18? (One or two blocks fit both: no weight is that small.) */
static bool is_private_42(const struct gguf_tensor *t, uint64_t stored_bytes, uint64_t alignment)
{
    uint64_t stored, ours, wide;
    return t->type == QUANT_Q2_0 && mc_align_up_u64(stored_bytes, alignment, &stored) &&
           mc_align_up_u64(t->size_bytes, alignment, &ours) &&
           mc_align_up_u64(t->size_bytes / 18 * PRIVATE_42_BYTES, alignment, &wide) && stored == wide && stored != ours;
}

static enum mc_code fail_private_42(struct cursor *c, const struct gguf_tensor *t)
{
    subject(c, "tensor", t->name);
    return bad(c, MC_EUNSUPPORTED,
               "its type number 42 is meant as a private type of a fork (%d bytes for 64 weights; q2_0 has 18); "
               "use a file with other weight types",
               PRIVATE_42_BYTES);
}

/* t does not begin where `prev` (the tensor before it, NULL for the first) ends. */
static enum mc_code fail_offset(struct cursor *c, const struct gguf_tensor *prev, const struct gguf_tensor *t, uint64_t want,
                                uint64_t room, uint64_t alignment)
{
    if (t->file_off >= room)
        return bad(c, MC_EFORMAT, "offset %" PRIu64 " lies outside of the %" PRIu64 " bytes of data (cut off or damaged)",
                   t->file_off, room);
    if (!prev) return bad(c, MC_EFORMAT, "the first tensor has offset %" PRIu64 ", expected 0", t->file_off);
    if (t->file_off < want)
        return bad(c, MC_EFORMAT, "offset %" PRIu64 " lies inside tensor '%.*s', expected %" PRIu64, t->file_off,
                   gguf_shown(prev->name), gguf_text(prev->name), want);
    const uint64_t stored = t->file_off - prev->file_off;
    if (is_private_42(prev, stored, alignment)) return fail_private_42(c, prev);
    subject(c, "tensor", prev->name);
    return bad(c, MC_EFORMAT, "%" PRIu64 " bytes are stored up to the next tensor, but its shape in type %s takes %" PRIu64,
               stored, quant_info((uint32_t)prev->type)->name, want - prev->file_off);
}

/* Checks the order of the data section and turns offsets into file offsets. */
static enum mc_code place_tensors(struct cursor *c, struct gguf_dir *dir, struct gguf_tensor **order)
{
    const uint64_t step = dir->alignment, room = dir->file_size > dir->data_off ? dir->file_size - dir->data_off : 0;
    uint64_t next = 0, end = 0;
    for (size_t i = 0; i < dir->n_tensors; i++) {
        struct gguf_tensor *t = order[i];
        subject(c, "tensor", t->name);
        if (t->file_off & (step - 1))
            return bad(c, MC_EFORMAT, "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64, t->file_off, step);
        if (t->file_off != next) return fail_offset(c, i ? order[i - 1] : NULL, t, next, room, step);
        if (!mc_add_u64(next, t->size_bytes, &end) || end > room || !mc_align_up_u64(end, step, &next))
            return bad(c, MC_EFORMAT,
                       "its %" PRIu64 " bytes begin at byte %" PRIu64 ", but the file has only %" PRIu64
                       ": it is cut off, fetch it again",
                       t->size_bytes, dir->data_off + t->file_off, dir->file_size);
    }
    const struct gguf_tensor *last = dir->n_tensors ? order[dir->n_tensors - 1] : NULL;
    if (last && is_private_42(last, room - last->file_off, step)) return fail_private_42(c, last);
    for (size_t i = 0; i < dir->n_tensors; i++) dir->tensors[i].file_off += dir->data_off;
    dir->data_end = dir->n_tensors ? dir->data_off + end : dir->meta_end;
    return MC_OK;
}

/* ---- the whole file --------------------------------------------------------------------------------------------- */

static enum mc_code read_alignment(struct cursor *c, struct gguf_dir *dir)
{
    const struct gguf_value *v = gguf_dir_find(dir, "general.alignment");
    dir->alignment = ALIGNMENT_DEFAULT;
    if (!v) return MC_OK;
    subject(c, "key", v->key);
    if (v->type != GGUF_U32) return bad(c, MC_EFORMAT, "type %s, expected u32", gguf_type_name(v->type));
    const uint32_t a = mc_load_u32(v->data.data);
    if (a < ALIGNMENT_MIN || a > ALIGNMENT_MAX || (a & (a - 1)))
        return bad(c, MC_EFORMAT, "%" PRIu32 ", expected a power of two from %d to %d", a, ALIGNMENT_MIN, ALIGNMENT_MAX);
    dir->alignment = a;
    return MC_OK;
}

/* Files end with the last tensor or with the padding behind it; anything between is a cut. More is for the caller, who can look
 * at what follows. */
static enum mc_code check_end(struct cursor *c, const struct gguf_dir *dir)
{
    const uint64_t end = dir->data_end, size = dir->file_size;
    uint64_t padded;
    subject(c, NULL, (struct mc_span){NULL, 0});
    if (!mc_align_up_u64(end, dir->alignment, &padded)) return bad(c, MC_EFORMAT, "its size wraps");
    if (size > end && size < padded)
        return bad(c, MC_EFORMAT, "%" PRIu64 " bytes, expected %" PRIu64 ": it is cut off, fetch it again", size, padded);
    return MC_OK;
}

static enum mc_code check_layout(struct cursor *c, struct gguf_dir *dir)
{
    enum mc_code rc = read_alignment(c, dir);
    if (rc != MC_OK) return rc;
    subject(c, NULL, (struct mc_span){NULL, 0});
    if (!mc_align_up_u64(dir->meta_end, dir->alignment, &dir->data_off)) return bad(c, MC_EFORMAT, "its size wraps");
    struct gguf_tensor **order = malloc((dir->n_tensors + 1) * sizeof *order);
    if (!order) return bad(c, MC_ENOMEM, "no memory for %zu tensors", dir->n_tensors);
    for (size_t i = 0; i < dir->n_tensors; i++) order[i] = &dir->tensors[i];
    qsort(order, dir->n_tensors, sizeof *order, by_offset);
    rc = place_tensors(c, dir, order);
    free(order);
    return rc == MC_OK ? check_end(c, dir) : rc;
}

static enum mc_code read_all(struct cursor *c, struct gguf_dir *dir)
{
    uint64_t n_tensors = 0, n_values = 0;
    enum mc_code rc = read_header(c, &n_tensors, &n_values);
    if (rc != MC_OK) return rc;
    dir->values = calloc((size_t)n_values + 1, sizeof *dir->values);
    dir->tensors = calloc((size_t)n_tensors + 1, sizeof *dir->tensors);
    if (!dir->values || !dir->tensors) return bad(c, MC_ENOMEM, "no memory for its directory");
    for (; dir->n_values < n_values; dir->n_values++) {
        rc = read_value(c, dir->n_values, &dir->values[dir->n_values]);
        if (rc != MC_OK) return rc;
    }
    for (; dir->n_tensors < n_tensors; dir->n_tensors++) {
        rc = read_tensor(c, dir->n_tensors, &dir->tensors[dir->n_tensors]);
        if (rc != MC_OK) return rc;
    }
    dir->meta_end = c->pos;
    size_t dup;
    rc = gguf_index_build(&dir->by_key, dir->values, sizeof *dir->values, dir->n_values, &dup, c->err);
    if (rc != MC_OK) return rc;
    if (dup != GGUF_NONE) {
        subject(c, "key", dir->values[dup].key);
        return bad(c, MC_EFORMAT, "it appears twice in the metadata");
    }
    return check_layout(c, dir);
}

enum mc_code gguf_dir_parse(struct gguf_dir *dir, struct mc_span bytes, uint64_t file_size, const char *path, uint64_t *need,
                            struct mc_err *err)
{
    struct cursor c = {.bytes = bytes, .file_size = file_size, .path = path, .err = err};
    *dir = (struct gguf_dir){.path = path, .file_size = file_size};
    const enum mc_code rc = read_all(&c, dir);
    *need = c.need;
    if (rc != MC_OK) gguf_dir_free(dir);
    return rc;
}

void gguf_dir_free(struct gguf_dir *dir)
{
    gguf_index_free(&dir->by_key);
    free(dir->values);
    free(dir->tensors);
    *dir = (struct gguf_dir){0};
}

const struct gguf_value *gguf_dir_find(const struct gguf_dir *dir, const char *key)
{
    const size_t i = gguf_index_find(&dir->by_key, (struct mc_span){(const uint8_t *)key, strlen(key)});
    return i == GGUF_NONE ? NULL : &dir->values[i];
}
