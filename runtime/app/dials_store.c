/* dials_store.c - see dials_store.h. The file is the table that `dials --json` prints. */
#include "runtime/app/dials_store.h"

#include "io/gguf/gguf_hash.h"
#include "platform/base/json.h"
#include "platform/os.h"
#include "runtime/control/settings_json.h"

#include <stdio.h>
#include <stdlib.h>

enum { FILE_BYTES_MAX = 1 << 20, PATH_CAP = 1200 };

struct dials_store {
    char path[PATH_CAP];
    struct mc_json *kept; /* NULL: none, or not read yet */
    uint64_t read_ns;     /* when it was read last; 0: never */
};

enum mc_code dials_store_open(const struct gguf *g, struct dials_store **out, struct mc_err *err)
{
    struct dials_store *const s = calloc(1, sizeof *s);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "no memory for the kept measurements");
    const enum mc_code code = gguf_kept_path(g, "dials", "json", s->path, sizeof s->path, err);
    if (code)
        free(s);
    else
        *out = s;
    return code;
}

void dials_store_close(struct dials_store *s)
{
    if (s) mc_json_destroy(s->kept);
    free(s);
}

const char *dials_store_path(const struct dials_store *s)
{
    return s->path;
}

enum mc_code dials_store_save(const struct dials_store *s, const struct json_out *table, struct mc_err *err)
{
    struct os_writer *w;
    if (table->failed) return mc_fail(err, MC_ENOMEM, 0, "no memory for the table");
    enum mc_code code = os_writer_create(s->path, &w, err);
    if (code) return code;
    code = os_writer_write(w, table->text, table->size, err);
    if (!code) code = os_writer_write(w, "\n", 1, err);
    if (!code) return os_writer_finish(w, err);
    os_writer_abort(w);
    return code;
}

static void look(struct dials_store *s)
{
    char *text;
    size_t size;
    const uint64_t now = os_clock_ns();
    if (s->read_ns && now - s->read_ns < UINT64_C(1000000000)) return;
    s->read_ns = now;
    mc_json_destroy(s->kept);
    s->kept = NULL;
    if (!os_file_exists(s->path) || os_file_read_all(s->path, FILE_BYTES_MAX, &text, &size, NULL)) return;
    if (mc_json_parse((struct mc_span){(const uint8_t *)text, size}, &s->kept, NULL)) s->kept = NULL;
    free(text);
}

/* The row of these settings; NULL: there is none. */
static const struct mc_json *find(const struct mc_json *kept, const struct moe_settings *settings,
                                  const struct settings_limits *limits)
{
    const struct mc_json *const rows = mc_json_get(kept, "profiles");
    const bool lossless = !settings_lossy(settings, limits);
    for (size_t i = 0; i < mc_json_count(rows); i++) {
        const struct mc_json *const row = mc_json_item(rows, i);
        struct moe_settings s = settings_lossless(limits);
        struct settings_refusal ignored;
        if (!settings_from_json(mc_json_get(row, "values"), limits, NULL, &s, &ignored)) continue;
        s.scope = settings->scope;
        if (settings_equal(&s, settings) || (lossless && !settings_lossy(&s, limits))) return row;
    }
    return NULL;
}

void dials_store_cost(struct dials_store *s, const struct moe_settings *settings, const struct settings_limits *limits,
                      const char *model, struct json_out *j)
{
    static const char *const figures[] = {"kl_mean",      "kl_p99",          "kl_top10_mean",    "top1_match",
                                          "top3_match",   "cos_mean",        "delta_ppl",        "delta_nll_error",
                                          "decode_tok_s", "bytes_per_token", "experts_per_layer"};
    if (s) look(s);
    const struct mc_json *const kept = s ? s->kept : NULL, *const row = find(kept, settings, limits);
    if (!row) {
        char note[600];
        json_out_null(j, "cost");
        snprintf(note, sizeof note, "%s: modchip dials -m %.400s -f TEXT%s measures it and keeps the result",
                 kept ? "these settings were not measured" : "nothing was measured for this model", model,
                 kept ? " with these options" : "");
        json_out_text(j, "cost_note", note);
        return;
    }
    const struct mc_span name = mc_json_string(mc_json_get(row, "profile")), text = mc_json_string(mc_json_get(kept, "text"));
    json_out_object(j, "cost");
    json_out_bytes(j, "profile", name.data, name.size);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) json_out_num(j, figures[i], mc_json_number(mc_json_get(row, figures[i])));
    json_out_int(j, "tokens", mc_json_int(mc_json_get(kept, "tokens")));
    json_out_bytes(j, "text", text.data, text.size);
    json_out_object_end(j);
}
