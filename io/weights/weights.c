/* weights.c - tensors in mapped files.
 *
 *   part:   | metadata | tensors ............................ | rest of the last page |
 *           map                                     file size   map + whole pages
 *
 * A mapping can be read to the end of its last page. Where the 64 bytes behind a tensor would lie beyond that (the file ends
 * less than 64 bytes before a page does; two files in a hundred), the tensor is read into memory of its own instead. */
#include "io/weights/weights.h"
#include "platform/os.h"

#include <inttypes.h>
#include <stdlib.h>

struct weights {
    const struct gguf *gguf;
    struct os_map **maps; /* one a part */
    const uint8_t **tensors;
    struct copy { /* tensors at the edge of a mapping */
        void *data;
        size_t size;
        struct copy *next;
    } * copies;
};

static const char *const io_names[WEIGHTS_IO_COUNT] = {"auto", "mmap", "uring", "pread"};

const char *weights_io_name(enum weights_io io)
{
    return (unsigned)io < WEIGHTS_IO_COUNT ? io_names[io] : "unknown";
}

static enum mc_code copy_tensor(struct weights *w, struct os_file *f, size_t idx, struct mc_err *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(w->gguf, idx);
    struct copy *c = calloc(1, sizeof *c);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory for a tensor", os_file_path(f));
    c->next = w->copies;
    w->copies = c;
    c->size = (size_t)t->size_bytes + WEIGHTS_OVERREAD_BYTES;
    enum mc_code rc = os_mem_alloc(c->size, OS_MEM_PLAIN, "weights at the end of a file", &c->data, err);
    if (rc == MC_OK) rc = os_file_read_at(f, t->file_off, c->data, (size_t)t->size_bytes, err);
    w->tensors[idx] = c->data;
    return rc;
}

static enum mc_code place_part(struct weights *w, unsigned part, struct os_file *f, size_t page_bytes, struct mc_err *err)
{
    const struct mc_span bytes = os_map_bytes(w->maps[part]);
    const size_t readable = mc_round_up(bytes.size, page_bytes);
    enum mc_code rc = MC_OK;
    for (size_t i = 0; i < gguf_n_tensors(w->gguf) && rc == MC_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(w->gguf, i);
        if (t->part != part) continue;
        if (t->file_off + t->size_bytes + WEIGHTS_OVERREAD_BYTES > readable)
            rc = copy_tensor(w, f, i, err);
        else
            w->tensors[i] = bytes.data + t->file_off;
    }
    return rc;
}

static enum mc_code open_part(struct weights *w, unsigned part, size_t page_bytes, struct mc_err *err)
{
    struct os_file *f = NULL;
    enum mc_code rc = gguf_part_file(w->gguf, part, &f, err);
    if (rc != MC_OK) return rc;
    rc = os_map_open(f, &w->maps[part], err);
    /* The file was measured when it was opened just now, but the mapping decides what is there. */
    if (rc == MC_OK && os_map_bytes(w->maps[part]).size != gguf_part_size(w->gguf, part))
        rc = mc_fail(err, MC_EIO, 0, "%s: its size changes while it is opened", os_file_path(f));
    if (rc == MC_OK) rc = place_part(w, part, f, page_bytes, err);
    os_file_close(f);
    return rc;
}

enum mc_code weights_open(const struct gguf *g, struct weights **out, struct mc_err *err)
{
    struct os_caps caps;
    os_caps_get(&caps);
    struct weights *w = calloc(1, sizeof *w);
    if (w) {
        w->gguf = g;
        w->maps = calloc(gguf_n_parts(g), sizeof *w->maps);
        w->tensors = calloc(gguf_n_tensors(g) + 1, sizeof *w->tensors);
    }
    if (!w || !w->maps || !w->tensors) {
        weights_close(w);
        return mc_fail(err, MC_ENOMEM, 0, "%s: no memory for its tensor list", gguf_path(g));
    }
    enum mc_code rc = MC_OK;
    for (unsigned p = 0; rc == MC_OK && p < gguf_n_parts(g); p++) rc = open_part(w, p, caps.page_bytes, err);
    if (rc == MC_OK)
        *out = w;
    else
        weights_close(w);
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w) return;
    while (w->copies) {
        struct copy *c = w->copies;
        w->copies = c->next;
        os_mem_free(c->data, c->size);
        free(c);
    }
    for (size_t p = 0; w->maps && p < gguf_n_parts(w->gguf); p++) os_map_close(w->maps[p]);
    free(w->maps);
    free(w->tensors);
    free(w);
}

const void *weights_tensor(const struct weights *w, size_t tensor_idx)
{
    return w->tensors[tensor_idx];
}

size_t weights_tensor_of(const struct weights *w, const void *data)
{
    size_t i = 0;
    while (i < gguf_n_tensors(w->gguf) && w->tensors[i] != data) i++;
    return i;
}

double weights_cached(const struct weights *w, unsigned part, uint64_t off, uint64_t size)
{
    return os_map_cached(w->maps[part], off, size);
}

const char *weights_damaged(const struct weights *w)
{
    for (size_t p = 0; p < gguf_n_parts(w->gguf); p++)
        if (os_map_damaged(w->maps[p])) return gguf_part_path(w->gguf, p);
    return NULL;
}

/* The part whose mapping holds this address, or NULL (a copy); *off: where in it. */
static const struct os_map *map_of(const struct weights *w, const void *data, uint64_t *off)
{
    for (size_t p = 0; p < gguf_n_parts(w->gguf); p++) {
        const struct mc_span map = os_map_bytes(w->maps[p]);
        *off = (uintptr_t)data - (uintptr_t)map.data;
        if (*off < map.size) return w->maps[p];
    }
    return NULL;
}

void weights_not_needed(const struct weights *w, const void *data, uint64_t size)
{
    uint64_t off;
    const struct os_map *m = map_of(w, data, &off);
    if (m) os_map_not_needed(m, off, size);
}

void weights_forget(const struct weights *w, const void *data, uint64_t size)
{
    uint64_t off;
    const struct os_map *m = map_of(w, data, &off);
    if (m) os_map_forget(m, off, size);
}

void weights_forget_all(const struct weights *w)
{
    for (size_t p = 0; p < gguf_n_parts(w->gguf); p++) os_map_forget(w->maps[p], 0, os_map_bytes(w->maps[p]).size);
}

void weights_will_need(const struct weights *w, const void *data, uint64_t size)
{
    uint64_t off;
    const struct os_map *m = map_of(w, data, &off);
    if (m) os_map_will_need(m, off, size);
}
