/* bind.h - tensor names -> the weights of a forward pass, every shape checked (architecture.md section 2).
 *
 * Matrices stay where io/weights keeps them; small vectors (norms, sinks, bases, score biases) are decoded to float once. */
#ifndef RUNTIME_MODEL_BIND_H
#define RUNTIME_MODEL_BIND_H

#include "kernels/kernels.h"
#include "platform/base/err.h"
#include "runtime/model/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;
struct weights;

/* Where the packed groups of a matrix are on a machine with several memory nodes. A product covers `home_rows` rows; groups
 * [first[k], first[k + 1]) of each such stretch are at home on node k and lie back to back, stretch after stretch, at base[k].
 * Or, mirrored, all groups in order at every base[k]. */
enum { MATRIX_NODES_MAX = 16 };
struct matrix_nodes {
    unsigned n;
    bool mirror;
    uint32_t first[MATRIX_NODES_MAX + 1];
    uint8_t *base[MATRIX_NODES_MAX];
};

/* `count` matrices of `rows` rows of `k` weights, back to back (count is 1, or the number of experts). */
struct matrix {
    const uint8_t *data;
    enum quant_type type;
    uint32_t k, rows, count;
    size_t row_bytes;
    /* The same matrices with 16 rows interleaved (kernels/pack.h), or NULL; filled by the engine where it pays. */
    const uint8_t *packed;
    size_t group_bytes;
    uint32_t home_rows;               /* rows of one product: all, or a part where a matrix serves several products in turn */
    const struct matrix_nodes *nodes; /* NULL: all groups in order at `packed` */
    bool keep_rows;                   /* to be left in the file's layout: single rows are skipped */
};

/* The packed group that holds row `row` (of all count * rows), for a worker of node `node`; *rows (or NULL): from that row on,
 * so many follow without a gap. */
const uint8_t *matrix_packed_row(const struct matrix *m, size_t row, unsigned node, uint32_t *rows);

static inline uint64_t matrix_bytes(const struct matrix *m)
{
    return (uint64_t)m->row_bytes * m->rows * m->count;
}

struct hyper_weights {
    struct matrix fn; /* [hc*(hc+2)][hc*D], the head's: [hc][hc*D]; always a float type (others are decoded) */
    const float *scale, *base;
};

struct compressor_weights {
    struct matrix kv, gate; /* [w][D], w = 2 * dim for ratio 4, dim for ratio 128 */
    const float *ape;       /* [ratio][w] */
    const float *norm;      /* [dim] */
};

struct layer_weights {
    uint32_t il, ratio;
    struct hyper_weights hyper_attn, hyper_ffn;
    const float *attn_norm, *ffn_norm, *q_a_norm, *kv_norm, *sinks;
    struct matrix q_a, q_b, kv, out_a /* [G*R][H*Dh/G] */, out_b;
    struct compressor_weights comp, index_comp; /* by ratio */
    struct matrix index_q_b, index_proj;
    struct matrix router;
    const float *router_bias; /* NULL in hash layers, and where the file has none */
    const uint8_t *hash_ids;  /* little-endian i32 [V][used]; NULL in learned layers */
    struct matrix gate, up, down, gate_shared, up_shared, down_shared;
};

struct model {
    struct model_shape shape;
    struct matrix embd, output;
    const float *output_norm;
    struct hyper_weights hyper_head;
    struct layer_weights *layers;
    void *arena; /* owns the layers and the decoded vectors */
    size_t arena_bytes;
};

/* Errors: MC_EFORMAT for a missing tensor, a wrong shape, a wrong type, an expert id out of range, NaN in a vector: always
 * naming the tensor. The weights must outlive the model. */
MC_MUST_CHECK enum mc_code model_bind(const struct gguf *g, const struct weights *w, const struct model_shape *shape,
                                      const struct kern_table *kern, struct model *out, struct mc_err *err);
void model_unbind(struct model *m);

/* Calls fn for every matrix that products read, those of every token first, then the routed experts layer by layer. */
void model_each_matrix(struct model *m, void (*fn)(void *user, struct matrix *matrix), void *user);

/* Weight bytes that one token reads in the layers and in the head (index queries and their scores apart). */
void model_token_bytes(const struct model *m, uint64_t *layers, uint64_t *head);
/* Weight bytes of the index queries, read only where the indexer has to choose. */
uint64_t model_index_bytes(const struct model *m);

#endif
