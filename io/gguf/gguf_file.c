/* gguf_file.c - brings a file's first bytes to the parser, joins the parts of a split set, answers questions.
 *
 * Reading, not mapping: a file that shrinks meanwhile gives an error, not a signal. The first read is 1 MiB, enough for all
 * but the vocabulary; when the parser wants more, the buffer at least doubles. Each part's buffer stays, for names and values.
 *
 * A set is name-00001-of-0000N.gguf ... Part 1 holds the metadata; each part holds its own directory and data. Tensors of all
 * parts are one list, values are those of part 1; what a later part repeats of them must be equal. */
#include "io/gguf/gguf_dir.h"
#include "platform/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_READ = 1 << 20, PART_NAME_BYTES = sizeof "-00001-of-00002.gguf" - 1 };

static char *copy_text(const char *s, size_t n)
{
    char *p = malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

/* ---- one file --------------------------------------------------------------------------------------------------- */

static void part_free(struct gguf_part *p)
{
    gguf_dir_free(&p->dir);
    free(p->meta);
    free(p->path);
    *p = (struct gguf_part){0};
}

/* Where bytes begin that belong to no tensor and no padding; 0 if there are none. */
static uint64_t trailing_off(const struct gguf_dir *dir)
{
    uint64_t padded;
    return mc_align_up_u64(dir->data_end, dir->alignment, &padded) && dir->file_size > padded ? padded : 0;
}

/* next: up to 4 bytes at trailing_off. */
static enum mc_code fail_trailing(const struct gguf_dir *dir, struct mc_span next, struct mc_err *err)
{
    const uint64_t off = trailing_off(dir);
    const bool gguf = next.size == 4 && !memcmp(next.data, "GGUF", 4);
    return mc_fail(err, MC_EFORMAT, 0,
                   "%s: %" PRIu64 " bytes follow after the last tensor at byte %" PRIu64 ", expected none%s",
                   gguf_path_tail(dir->path), dir->file_size - off, off,
                   gguf ? ": another GGUF file begins there; keep the parts of a split set as separate files" : "");
}

static enum mc_code check_trailing(const struct gguf_dir *dir, struct os_file *f, struct mc_err *err)
{
    uint8_t next[4];
    const uint64_t off = trailing_off(dir);
    if (!off) return MC_OK;
    const size_t n = dir->file_size - off < 4 ? (size_t)(dir->file_size - off) : 4;
    const enum mc_code rc = os_file_read_at(f, off, next, n, err);
    return rc == MC_OK ? fail_trailing(dir, (struct mc_span){next, n}, err) : rc;
}

/* Makes the first `want` bytes of f available in p->meta, of which `have` are there. */
static enum mc_code read_more(struct gguf_part *p, struct os_file *f, size_t have, size_t want, struct mc_err *err)
{
    uint8_t *grown = realloc(p->meta, want + 1); /* + 1: an empty file is for the parser to refuse */
    if (!grown) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory for %zu bytes of metadata", gguf_path_tail(p->path), want);
    p->meta = grown;
    return os_file_read_at(f, have, grown + have, want - have, err);
}

static enum mc_code read_directory(struct gguf_part *p, struct os_file *f, struct mc_err *err)
{
    const uint64_t size = os_file_size(f);
    size_t have = 0, want = size < FIRST_READ ? (size_t)size : FIRST_READ;
    for (;;) {
        uint64_t need;
        enum mc_code rc = read_more(p, f, have, want, err);
        if (rc != MC_OK) return rc;
        have = want;
        rc = gguf_dir_parse(&p->dir, (struct mc_span){p->meta, have}, size, p->path, &need, err);
        if (rc != MC_EBUSY) return rc;
        if (need > GGUF_META_MAX)
            return mc_fail(err, MC_EUNSUPPORTED, 0, "%s: its metadata takes more than %" PRIu64 " bytes, the most that is read",
                           gguf_path_tail(p->path), GGUF_META_MAX);
        if (need < 2 * (uint64_t)have) need = 2 * (uint64_t)have;
        if (need > GGUF_META_MAX) need = GGUF_META_MAX;
        want = need < size ? (size_t)need : (size_t)size;
    }
}

static enum mc_code part_open(struct gguf_part *p, const char *path, struct mc_err *err)
{
    struct os_file *f = NULL;
    p->path = copy_text(path, strlen(path));
    if (!p->path) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(path));
    enum mc_code rc = os_file_open(path, &f, err);
    if (rc != MC_OK) return rc;
    rc = read_directory(p, f, err);
    if (rc == MC_OK) rc = check_trailing(&p->dir, f, err);
    os_file_close(f);
    return rc;
}

/* ---- split sets ------------------------------------------------------------------------------------------------- */

/* The numbers of a part; count 0: not a set. */
struct split {
    uint64_t no; /* from 0 */
    uint64_t count;
    uint64_t n_tensors; /* of all parts */
};

static enum mc_code split_number(const struct gguf_dir *dir, const char *key, uint64_t *out, struct mc_err *err)
{
    const struct gguf_value *v = gguf_dir_find(dir, key);
    if (v && gguf_value_u64(v, out)) return MC_OK;
    return mc_fail(err, MC_EFORMAT, 0, "%s: key '%s' is %s, expected an integer: the file is part of a split set",
                   gguf_path_tail(dir->path), key, v ? "of a wrong type" : "missing");
}

static enum mc_code split_read(const struct gguf_dir *dir, struct split *s, struct mc_err *err)
{
    *s = (struct split){0};
    if (!gguf_dir_find(dir, "split.count")) return MC_OK;
    enum mc_code rc = split_number(dir, "split.count", &s->count, err);
    if (rc != MC_OK) return rc;
    if (s->count <= 1) { /* tools that join a set leave a 0 or 1 behind */
        s->count = 0;
        return MC_OK;
    }
    rc = split_number(dir, "split.no", &s->no, err);
    if (rc == MC_OK) rc = split_number(dir, "split.tensors.count", &s->n_tensors, err);
    if (rc == MC_OK && s->no >= s->count)
        rc = mc_fail(err, MC_EFORMAT, 0, "%s: key 'split.no' is %" PRIu64 ", expected less than split.count, %" PRIu64,
                     gguf_path_tail(dir->path), s->no, s->count);
    return rc;
}

static bool five_digits(const char *p, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *out = *out * 10 + (uint64_t)(p[i] - '0');
    }
    return true;
}

/* Length of `name` in name-00002-of-00003.gguf; the numbers must be those in the metadata. */
static enum mc_code split_prefix(const char *path, const struct split *s, size_t *prefix, struct mc_err *err)
{
    const size_t n = strlen(path);
    const char *tail = n > PART_NAME_BYTES ? path + n - PART_NAME_BYTES : "";
    uint64_t number, count;
    if (*tail && tail[0] == '-' && five_digits(tail + 1, &number) && !memcmp(tail + 6, "-of-", 4) &&
        five_digits(tail + 10, &count) && !strcmp(tail + 15, ".gguf") && number == s->no + 1 && count == s->count) {
        *prefix = n - PART_NAME_BYTES;
        return MC_OK;
    }
    return mc_fail(err, MC_EFORMAT, 0,
                   "%s: its metadata says part %" PRIu64 " of %" PRIu64 " (split.no, split.count), so its name must end "
                   "in -%05" PRIu64 "-of-%05" PRIu64 ".gguf: rename it",
                   gguf_path_tail(path), s->no + 1, s->count, s->no + 1, s->count);
}

/* What part i says must agree with part 1, or it belongs to another model. */
static enum mc_code check_part(const struct gguf_dir *first, const struct gguf_dir *dir, uint64_t i, struct mc_err *err)
{
    const char *path = gguf_path_tail(dir->path);
    struct split a, b;
    enum mc_code rc = split_read(first, &a, err);
    if (rc == MC_OK) rc = split_read(dir, &b, err);
    if (rc != MC_OK) return rc;
    if (b.count != a.count || b.no != i)
        return mc_fail(err, MC_EFORMAT, 0,
                       "%s: its metadata says part %" PRIu64 " of %" PRIu64 " (split.no, split.count), expected part "
                       "%" PRIu64 " of %" PRIu64,
                       path, b.no + 1, b.count, i + 1, a.count);
    for (size_t k = 0; k < dir->n_values; k++) {
        const struct gguf_value *v = &dir->values[k];
        const size_t at = gguf_index_find(&first->by_key, v->key);
        if (at == GGUF_NONE || (v->key.size == 8 && !memcmp(v->key.data, "split.no", 8))) continue;
        const struct gguf_value *w = &first->values[at];
        if (v->type == w->type && v->item_type == w->item_type && v->count == w->count && v->data.size == w->data.size &&
            (v->data.size == 0 || !memcmp(v->data.data, w->data.data, v->data.size)))
            continue;
        return mc_fail(err, MC_EFORMAT, 0, "%s: key '%.*s' differs from part 1: this part belongs to another model", path,
                       gguf_shown(v->key), gguf_text(v->key));
    }
    return MC_OK;
}

static enum mc_code add_part(struct gguf *g, const char *path, struct mc_err *err)
{
    struct gguf_part *grown = realloc(g->parts, (g->n_parts + 1) * sizeof *grown);
    if (!grown) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(path));
    g->parts = grown;
    grown[g->n_parts] = (struct gguf_part){0};
    return part_open(&grown[g->n_parts++], path, err);
}

/* The part that was named is open. Opens all the others. */
static enum mc_code open_set(struct gguf *g, const struct split *s, struct mc_err *err)
{
    size_t prefix = 0;
    enum mc_code rc = split_prefix(g->path, s, &prefix, err);
    if (rc != MC_OK) return rc;
    char *path = copy_text(g->path, strlen(g->path));
    if (!path) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(g->path));
    if (s->no != 0) part_free(&g->parts[--g->n_parts]); /* begin with part 1, it has the metadata */
    for (uint64_t i = g->n_parts; i < s->count && rc == MC_OK; i++) {
        snprintf(path + prefix, PART_NAME_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)i + 1, (unsigned)s->count);
        if (!os_file_exists(path))
            rc = mc_fail(err, MC_EIO, 0, "%s: part %" PRIu64 " of %" PRIu64 " is missing; all parts must be in one folder",
                         gguf_path_tail(path), i + 1, s->count);
        if (rc == MC_OK) rc = add_part(g, path, err);
        if (rc == MC_OK) rc = check_part(&g->parts[0].dir, &g->parts[i].dir, i, err);
    }
    free(path);
    return rc;
}

/* ---- the object ------------------------------------------------------------------------------------------------- */

/* All parts are read and agree: one list of tensors and its index. */
static enum mc_code join(struct gguf *g, struct mc_err *err)
{
    size_t n = 0, dup;
    for (size_t p = 0; p < g->n_parts; p++) n += g->parts[p].dir.n_tensors;
    if (n > GGUF_TENSORS_MAX)
        return mc_fail(err, MC_EUNSUPPORTED, 0, "%s: %zu tensors in all parts; at most %u are read", gguf_path_tail(g->path), n,
                       GGUF_TENSORS_MAX);
    g->tensors = malloc((n + 1) * sizeof *g->tensors);
    if (!g->tensors) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory for %zu tensors", gguf_path_tail(g->path), n);
    for (size_t p = 0; p < g->n_parts; p++) {
        struct gguf_dir *dir = &g->parts[p].dir;
        for (size_t i = 0; i < dir->n_tensors; i++) {
            g->tensors[g->n_tensors] = dir->tensors[i];
            g->tensors[g->n_tensors++].part = (unsigned)p;
        }
        free(dir->tensors);
        dir->tensors = NULL;
    }
    const enum mc_code rc = gguf_index_build(&g->by_name, g->tensors, sizeof *g->tensors, n, &dup, err);
    if (rc != MC_OK || dup == GGUF_NONE) return rc;
    const struct gguf_tensor *t = &g->tensors[dup];
    return mc_fail(err, MC_EFORMAT, 0, "%s: tensor '%.*s' appears twice", gguf_path_tail(g->parts[t->part].path),
                   gguf_shown(t->name), gguf_text(t->name));
}

static enum mc_code check_total(const struct gguf *g, const struct split *s, struct mc_err *err)
{
    if (s->count == 0 || g->n_tensors == s->n_tensors) return MC_OK;
    return mc_fail(err, MC_EFORMAT, 0, "%s: the %zu parts hold %zu tensors, expected %" PRIu64 " (key 'split.tensors.count')",
                   gguf_path_tail(g->path), g->n_parts, g->n_tensors, s->n_tensors);
}

static struct gguf *create(const char *path)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (g) g->path = copy_text(path, strlen(path));
    if (g && g->path) return g;
    free(g);
    return NULL;
}

enum mc_code gguf_open(const char *path, struct gguf **out, struct mc_err *err)
{
    struct split split;
    struct gguf *g = create(path);
    if (!g) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(path));
    enum mc_code rc = add_part(g, path, err);
    if (rc == MC_OK) rc = split_read(&g->parts[0].dir, &split, err);
    if (rc == MC_OK && split.count) rc = open_set(g, &split, err);
    if (rc == MC_OK) rc = join(g, err);
    if (rc == MC_OK) rc = check_total(g, &split, err);
    if (rc == MC_OK)
        *out = g;
    else
        gguf_close(g);
    return rc;
}

static enum mc_code part_parse(struct gguf_part *p, struct mc_span bytes, const char *name, struct mc_err *err)
{
    uint64_t need;
    struct split split;
    p->path = copy_text(name, strlen(name));
    if (!p->path) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(name));
    enum mc_code rc = gguf_dir_parse(&p->dir, bytes, bytes.size, p->path, &need, err);
    if (rc != MC_OK) return rc;
    const uint64_t off = trailing_off(&p->dir);
    const size_t n = bytes.size - off < 4 ? (size_t)(bytes.size - off) : 4;
    if (off) return fail_trailing(&p->dir, (struct mc_span){bytes.data + off, n}, err);
    rc = split_read(&p->dir, &split, err);
    if (rc == MC_OK && split.count)
        rc = mc_fail(err, MC_EUNSUPPORTED, 0,
                     "%s: key 'split.count' is %" PRIu64 ": a part of a split set can be opened only as a file",
                     gguf_path_tail(name), split.count);
    return rc;
}

enum mc_code gguf_parse(struct mc_span bytes, const char *name, struct gguf **out, struct mc_err *err)
{
    struct gguf *g = create(name);
    if (g) g->parts = calloc(1, sizeof *g->parts);
    if (!g || !g->parts) {
        gguf_close(g);
        return mc_fail(err, MC_ENOMEM, 0, "%s: no memory", gguf_path_tail(name));
    }
    g->n_parts = 1;
    g->in_memory = true;
    enum mc_code rc = part_parse(&g->parts[0], bytes, name, err);
    if (rc == MC_OK) rc = join(g, err);
    if (rc == MC_OK)
        *out = g;
    else
        gguf_close(g);
    return rc;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (size_t p = 0; p < g->n_parts; p++) part_free(&g->parts[p]);
    free(g->parts);
    gguf_index_free(&g->by_name);
    free(g->tensors);
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_n_parts(const struct gguf *g)
{
    return g->n_parts;
}

const char *gguf_part_path(const struct gguf *g, size_t part)
{
    return g->parts[part].path;
}

uint64_t gguf_part_size(const struct gguf *g, size_t part)
{
    return g->parts[part].dir.file_size;
}

uint32_t gguf_alignment(const struct gguf *g)
{
    return g->parts[0].dir.alignment;
}

size_t gguf_n_values(const struct gguf *g)
{
    return g->parts[0].dir.n_values;
}

const struct gguf_value *gguf_value_at(const struct gguf *g, size_t i)
{
    return &g->parts[0].dir.values[i];
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_dir_find(&g->parts[0].dir, key);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    const size_t i = gguf_index_find(&g->by_name, (struct mc_span){(const uint8_t *)name, strlen(name)});
    return i == GGUF_NONE ? NULL : &g->tensors[i];
}

enum mc_code gguf_part_file(const struct gguf *g, size_t part, struct os_file **out, struct mc_err *err)
{
    const struct gguf_part *p = &g->parts[part];
    if (g->in_memory)
        return mc_fail(err, MC_EARG, 0, "%s: it was parsed from memory, there is no file", gguf_path_tail(p->path));
    struct os_file *f = NULL;
    const enum mc_code rc = os_file_open(p->path, &f, err);
    if (rc != MC_OK) return rc;
    if (os_file_size(f) != p->dir.file_size) {
        const uint64_t size = os_file_size(f);
        os_file_close(f);
        return mc_fail(err, MC_EIO, 0, "%s: it has %" PRIu64 " bytes now and had %" PRIu64 " when its directory was read",
                       gguf_path_tail(p->path), size, p->dir.file_size);
    }
    *out = f;
    return MC_OK;
}
