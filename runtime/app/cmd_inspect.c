/* cmd_inspect.c - `modchip inspect`: what a GGUF file says, without the engine, so that files which the engine refuses can be
 * looked at.
 *
 * Bytes per token are those of a deepseek4 file: every tensor once, of the routed experts the used share, of look-up tables
 * (embedding, token routing) one row. */
#include "io/gguf/gguf.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/inspect_check.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"

#include <inttypes.h>
#include <stdio.h>

enum { ITEMS_SHOWN = 8, TEXT_SHOWN = 60 };

struct totals {
    uint64_t bytes, weights; /* of all tensors */
    uint64_t n[QUANT_TYPE_COUNT], type_bytes[QUANT_TYPE_COUNT];
    bool has_token_bytes;
    uint64_t token_bytes_layers, token_bytes_head;
};

static bool name_has(struct mc_span name, const char *part)
{
    const size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.size; i++)
        if (!memcmp(name.data + i, part, n)) return true;
    return false;
}

static bool name_starts(struct mc_span name, const char *part)
{
    const size_t n = strlen(part);
    return name.size >= n && !memcmp(name.data, part, n);
}

static uint64_t rows_of(const struct gguf_tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3]; /* the reader has checked the product */
}

/* What one decoded token reads of this tensor. */
static uint64_t token_share(const struct gguf_tensor *t, uint64_t used, uint64_t experts)
{
    if (name_starts(t->name, "token_embd") || name_has(t->name, "tid2eid")) return t->size_bytes / rows_of(t);
    if (name_has(t->name, "_exps.") && t->ne[2] == experts) return t->size_bytes / experts * used;
    return t->size_bytes;
}

static void add_up(const struct gguf *g, struct totals *sum)
{
    memset(sum, 0, sizeof *sum);
    uint64_t used = 0, experts = 0;
    sum->has_token_bytes = gguf_n_tensors(g) && !gguf_get_u64(g, "deepseek4.expert_used_count", &used, NULL) &&
                           !gguf_get_u64(g, "deepseek4.expert_count", &experts, NULL) && used > 0 && used <= experts;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum->bytes += t->size_bytes;
        sum->weights += rows_of(t) * t->ne[0];
        sum->n[t->type]++;
        sum->type_bytes[t->type] += t->size_bytes;
        if (!sum->has_token_bytes) continue;
        *(name_starts(t->name, "output") ? &sum->token_bytes_head : &sum->token_bytes_layers) += token_share(t, used, experts);
    }
}

/* ---- metadata values -------------------------------------------------------------------------------------------------- */

static void json_item(struct json_out *j, const char *key, const struct gguf *g, const struct gguf_value *v,
                      enum gguf_type type, uint64_t i)
{
    int64_t n;
    double f;
    if (type == GGUF_F32 || type == GGUF_F64) {
        if (gguf_item_f64(g, v, i, &f, NULL)) f = 0;
        if (type == GGUF_F32)
            json_out_float(j, key, (float)f);
        else
            json_out_num(j, key, f);
    } else if (type == GGUF_BOOL) {
        json_out_bool(j, key, v->data.data[i] != 0);
    } else if (gguf_item_i64(g, v, i, &n, NULL) == MC_OK) {
        json_out_int(j, key, n);
    } else {
        json_out_uint(j, key, mc_load_u64(v->data.data + 8 * i)); /* a u64 beyond int64 */
    }
}

/* Long arrays and texts are cut; `count` and `bytes` then tell how much there is. */
static void json_value(struct json_out *j, const struct gguf *g, const struct gguf_value *v)
{
    char key[256];
    snprintf(key, sizeof key, "%.*s", (int)(v->key.size < 255 ? v->key.size : 255), (const char *)v->key.data);
    if (v->type == GGUF_STRING) {
        json_out_bytes(j, key, v->data.data, v->data.size < 4096 ? v->data.size : 4096);
        return;
    }
    if (v->type != GGUF_ARRAY) {
        json_item(j, key, g, v, v->type, 0);
        return;
    }
    json_out_object(j, key);
    json_out_text(j, "type", gguf_type_name(v->item_type));
    json_out_uint(j, "count", v->count);
    json_out_array(j, v->count > 256 ? "first" : "items");
    size_t pos = 0;
    struct mc_span s;
    for (uint64_t i = 0; i < v->count && (i < ITEMS_SHOWN || v->count <= 256); i++)
        if (v->item_type != GGUF_STRING)
            json_item(j, NULL, g, v, v->item_type, i);
        else if (gguf_next_string(v, &pos, &s))
            json_out_bytes(j, NULL, s.data, s.size);
    json_out_array_end(j);
    json_out_object_end(j);
}

/* The same text as JSON has, on one line of a table. */
static enum mc_code print_value(const struct gguf *g, const struct gguf_value *v, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    size_t pos = 0;
    struct mc_span s;
    if (v->type == GGUF_STRING) {
        json_out_bytes(&j, NULL, v->data.data, v->data.size < TEXT_SHOWN ? v->data.size : TEXT_SHOWN);
    } else if (v->type != GGUF_ARRAY) {
        json_item(&j, NULL, g, v, v->type, 0);
    } else {
        json_out_array(&j, NULL);
        for (uint64_t i = 0; i < v->count && i < ITEMS_SHOWN; i++)
            if (v->item_type != GGUF_STRING)
                json_item(&j, NULL, g, v, v->item_type, i);
            else if (gguf_next_string(v, &pos, &s))
                json_out_bytes(&j, NULL, s.data, s.size);
        json_out_array_end(&j);
    }
    if (j.failed) {
        json_out_deinit(&j);
        return mc_fail(err, MC_ENOMEM, 0, "no memory to print the metadata");
    }
    printf("  %-44.*s %-6s ", (int)(v->key.size < 200 ? v->key.size : 200), (const char *)v->key.data,
           gguf_type_name(v->type == GGUF_ARRAY ? v->item_type : v->type));
    fwrite(j.text, 1, j.size, stdout);
    if (v->type == GGUF_ARRAY && v->count > ITEMS_SHOWN) printf(" ... %" PRIu64 " in all", v->count);
    if (v->type == GGUF_STRING && v->data.size > TEXT_SHOWN) printf(" ... %zu bytes in all", v->data.size);
    putchar('\n');
    json_out_deinit(&j);
    return MC_OK;
}

/* ---- the two forms of output ------------------------------------------------------------------------------------------ */

static enum mc_code print_table(const struct gguf *g, const struct totals *sum, bool tensors, struct mc_err *err)
{
    printf("file       %s\n", gguf_path(g));
    if (gguf_n_parts(g) > 1)
        for (size_t i = 0; i < gguf_n_parts(g); i++)
            printf("part %zu     %s, %" PRIu64 " bytes\n", i + 1, gguf_part_path(g, i), gguf_part_size(g, i));
    else
        printf("size       %" PRIu64 " bytes\n", gguf_part_size(g, 0));
    printf("alignment  %" PRIu32 "\nmetadata   %zu keys\n", gguf_alignment(g), gguf_n_values(g));
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const enum mc_code code = print_value(g, gguf_value_at(g, i), err);
        if (code) return code;
    }
    printf("tensors    %zu, %.3f GB, %.3f billion weights\n", gguf_n_tensors(g), (double)sum->bytes * 1e-9,
           (double)sum->weights * 1e-9);
    for (unsigned t = 0; t < QUANT_TYPE_COUNT; t++)
        if (sum->n[t])
            printf("  %-8s %6" PRIu64 "  %10.3f MB\n", quant_info(t)->name, sum->n[t], (double)sum->type_bytes[t] * 1e-6);
    if (sum->has_token_bytes)
        printf("per token  %.3f MB in the layers, %.3f MB in the head\n", (double)sum->token_bytes_layers * 1e-6,
               (double)sum->token_bytes_head * 1e-6);
    for (size_t i = 0; i < gguf_n_tensors(g) && tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        printf("  %-44.*s %-8s %12" PRIu64 "  part %u at %-12" PRIu64, (int)(t->name.size < 200 ? t->name.size : 200),
               (const char *)t->name.data, quant_info(t->type)->name, t->size_bytes, t->part + 1, t->file_off);
        for (unsigned d = 0; d < t->n_dims; d++) printf("%s%" PRIu64, d ? " x " : " ", t->ne[d]);
        putchar('\n');
    }
    return MC_OK;
}

static void json_tensors(struct json_out *j, const struct gguf *g)
{
    json_out_array(j, "tensor_list");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_out_object(j, NULL);
        json_out_bytes(j, "name", t->name.data, t->name.size);
        json_out_text(j, "type", quant_info(t->type)->name);
        json_out_array(j, "shape");
        for (unsigned d = 0; d < t->n_dims; d++) json_out_uint(j, NULL, t->ne[d]);
        json_out_array_end(j);
        json_out_uint(j, "part", t->part + 1);
        json_out_uint(j, "offset", t->file_off);
        json_out_uint(j, "bytes", t->size_bytes);
        json_out_object_end(j);
    }
    json_out_array_end(j);
}

static void json_facts(struct json_out *j, const struct gguf *g, const struct totals *sum)
{
    json_out_text(j, "file", gguf_path(g));
    json_out_uint(j, "alignment", gguf_alignment(g));
    json_out_array(j, "parts");
    for (size_t i = 0; i < gguf_n_parts(g); i++) {
        json_out_object(j, NULL);
        json_out_text(j, "file", gguf_part_path(g, i));
        json_out_uint(j, "bytes", gguf_part_size(g, i));
        json_out_object_end(j);
    }
    json_out_array_end(j);
    json_out_object(j, "metadata");
    for (size_t i = 0; i < gguf_n_values(g); i++) json_value(j, g, gguf_value_at(g, i));
    json_out_object_end(j);
    json_out_uint(j, "tensors", gguf_n_tensors(g));
    json_out_uint(j, "tensor_bytes", sum->bytes);
    json_out_uint(j, "weights", sum->weights);
    json_out_object(j, "types");
    for (unsigned t = 0; t < QUANT_TYPE_COUNT; t++) {
        if (!sum->n[t]) continue;
        json_out_object(j, quant_info(t)->name);
        json_out_uint(j, "tensors", sum->n[t]);
        json_out_uint(j, "bytes", sum->type_bytes[t]);
        json_out_object_end(j);
    }
    json_out_object_end(j);
    if (!sum->has_token_bytes) return;
    json_out_uint(j, "bytes_per_token", sum->token_bytes_layers + sum->token_bytes_head);
    json_out_uint(j, "bytes_per_token_head", sum->token_bytes_head);
}

/* `checked`: --check was asked for and found nothing (a finding is an error and ends the command before). */
static enum mc_code print_json(const struct gguf *g, const struct totals *sum, bool tensors, bool checked, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_facts(&j, g, sum);
    if (tensors) json_tensors(&j, g);
    if (checked) json_out_bool(&j, "checked", true);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

enum mc_code cmd_inspect(const struct app_options *o, struct mc_err *err)
{
    char path[MODEL_PATH_MAX];
    struct gguf *g;
    enum mc_code code = MC_OK;
    if (o->n_args && opt_is_set(o, OPT_MODEL) && o->value[OPT_MODEL].source == OPT_FROM_LINE)
        return mc_fail(err, MC_EARG, 0, "both -m and '%s' name a file", o->args[0]);
    if (!o->n_args) code = model_path(o, path, err);
    if (!code) code = gguf_open(o->n_args ? o->args[0] : path, &g, err);
    if (code) return code;
    struct totals sum;
    add_up(g, &sum);
    const bool check = opt_flag(o, OPT_CHECK), tensors = opt_flag(o, OPT_TENSORS);
    if (check) code = inspect_check(g, opt_flag(o, OPT_QUIET), err);
    if (!code && opt_flag(o, OPT_JSON))
        code = print_json(g, &sum, tensors, check, err);
    else if (!code) {
        code = print_table(g, &sum, tensors, err);
        if (!code && check) puts("checked    every byte was read, every weight is a finite number");
    }
    gguf_close(g);
    return code;
}
