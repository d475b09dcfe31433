/* fuzz_chat.c - any output of a model, cut in any way: the same message as when it comes whole, every promise of the events
 * kept, all arguments JSON objects. And any JSON as a request: rendered or refused, never a crash.
 *
 * Input: one byte of flags (1 thinking, 2 tools, 4 length, 8 a stop string, 16 the rest is a request, 32 as ids), one byte that
 * seeds the cuts, then the text. */
#include "io/gguf/gguf.h"
#include "platform/base/json.h"
#include "runtime/text/chat_form.h"
#include "runtime/text/tool_set.h"
#include "tests/unit/text/answer_support.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char declared[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\"},"
    " \"n\": {\"type\": \"integer\"}}}}}, {\"function\": {\"name\": \"now\"}}]";

static const struct tokenizer *vocabulary(void)
{
    static struct tokenizer *t;
    struct gguf *g = NULL;
    if (t) return t;
    if (gguf_open(MC_MODELS "/tiny-dsv4.gguf", &g, NULL) || tokenizer_create(g, &t, NULL)) abort();
    gguf_close(g);
    return t;
}

static void check_arguments(void *user, size_t idx, bool complete)
{
    struct answer_log *const l = user;
    struct mc_json *v = NULL;
    al_end(user, idx, complete);
    if (!complete) return;
    if (mc_json_parse(text_buf_span(&l->arguments), &v, NULL) || mc_json_type(v) != MC_JSON_OBJECT) l->is_bad = true;
    mc_json_destroy(v);
}

/* seed 0: whole. */
static void run(struct mc_span text, uint8_t flags, const struct tool_set *tools, uint32_t seed, struct text_buf *out)
{
    struct answer_log log;
    struct answer_stream *a = NULL;
    struct token_list ids;
    enum answer_finish finish;
    const struct mc_span stop = text_span_str("ab\n");
    const bool as_ids = flags & 32 && seed;
    answer_log_init(&log);
    token_list_init(&ids);
    struct answer_events events = answer_log_events(&log);
    events.call_end = check_arguments;
    const struct answer_options options = {flags & 1, flags & 2 ? tools : NULL, &stop, flags & 8 ? 1 : 0};
    if (answer_stream_create(vocabulary(), &options, &events, &a, NULL)) abort();
    if (as_ids && tokenizer_encode(vocabulary(), text, TOKENIZER_USER_DEFINED, NULL, 0, &ids, NULL)) abort();
    for (size_t i = 0; i < ids.n; i++)
        if (answer_stream_feed_id(a, ids.ids[i], NULL)) abort();
    for (size_t at = 0, n; !as_ids && at < text.size; at += n) {
        seed = seed * 1664525u + 1013904223u * (seed != 0);
        n = seed ? 1 + (seed >> 16) % 16 : text.size;
        if (n > text.size - at) n = text.size - at;
        if (answer_stream_feed_text(a, text_span(text.data + at, n), NULL)) abort();
    }
    if (answer_stream_finish(a, flags & 4 ? ANSWER_LENGTH : ANSWER_STOP, &finish, NULL)) abort();
    if (log.is_bad || log.in_call) abort();
    text_buf_clear(out);
    answer_log_write(&log, finish, out);
    answer_stream_destroy(a);
    answer_log_deinit(&log);
    token_list_deinit(&ids);
}

static void render(struct mc_span text, uint8_t flags)
{
    struct mc_json *request = NULL;
    struct chat_controls controls = {.thinking = flags & 1};
    struct chat_prompt p;
    struct token_list ids;
    struct tool_set *tools = NULL;
    if (mc_json_parse(text, &request, NULL)) return;
    chat_prompt_init(&p);
    token_list_init(&ids);
    if (chat_request_controls(request, &controls, NULL) == MC_OK &&
        chat_render_request(request, &controls, &p, NULL) == MC_OK) {
        if (tool_set_create(chat_request_tools(request), &tools, NULL)) abort();
        for (size_t i = 0; i < p.n_untrusted; i++)
            if (p.untrusted[i].from >= p.untrusted[i].to || p.untrusted[i].to > p.text.size ||
                (i > 0 && p.untrusted[i].from < p.untrusted[i - 1].to))
                abort();
        if (chat_encode(vocabulary(), &p, &ids, NULL) || ids.n == 0) abort();
    }
    tool_set_destroy(tools);
    token_list_deinit(&ids);
    chat_prompt_deinit(&p);
    mc_json_destroy(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct mc_span text = text_span(data + 2, size - 2);
    if (data[0] & 16) {
        render(text, data[0]);
        return 0;
    }
    struct mc_json *json = NULL;
    struct tool_set *tools = NULL;
    struct text_buf whole, cut;
    text_buf_init(&whole);
    text_buf_init(&cut);
    if (mc_json_parse(text_span_str(declared), &json, NULL) || tool_set_create(json, &tools, NULL)) abort();
    run(text, data[0], tools, 0, &whole);
    for (uint32_t i = 1; i <= 3; i++) {
        run(text, data[0], tools, data[1] * 4u + i, &cut);
        if (!text_same(text_buf_span(&whole), text_buf_span(&cut))) abort();
    }
    text_buf_deinit(&whole);
    text_buf_deinit(&cut);
    tool_set_destroy(tools);
    mc_json_destroy(json);
    return 0;
}
