/* chat_request.c - from a request object to a conversation: which fields mean what, and what is refused.
 *
 * Texts that are put together (parts of a content, system messages at the start) live in one buffer; messages note their range
 * in it and get their spans when it has stopped growing. Everything else borrows from the request. */
#include "runtime/text/chat_conversation.h"

#include "platform/base/json.h"
#include "runtime/text/tool_set.h"

#include <stdlib.h>

struct builder {
    const struct mc_json *request;
    struct chat_message *messages;
    struct text_range *contents; /* of messages[i], in strings */
    size_t n;
    struct text_buf strings;
    struct mc_err *err;
};

/* For messages: a span of the request, cut to what a sentence can hold. */
#define SHOW_MAX 40
#define SHOW(s)  (int)((s).size < SHOW_MAX ? (s).size : SHOW_MAX), (s).size ? (const char *)(s).data : ""

static bool is_text_part(struct mc_span type)
{
    return text_is(type, "text") || text_is(type, "input_text") || text_is(type, "output_text");
}

/* Appends the text of a content to b->strings. */
static enum mc_code read_content(struct builder *b, const struct mc_json *content, const char *joint, size_t at)
{
    const enum mc_json_type type = mc_json_type(content);
    if (type == MC_JSON_NULL) return MC_OK;
    if (type == MC_JSON_STRING) {
        text_buf_add_span(&b->strings, mc_json_string(content));
        return MC_OK;
    }
    if (type != MC_JSON_ARRAY)
        return mc_fail(b->err, MC_EARG, 0, "messages[%zu].content: expected a string, null or an array of text parts", at);
    for (size_t i = 0; i < mc_json_count(content); i++) {
        const struct mc_json *const part = mc_json_item(content, i), *const text = mc_json_get(part, "text");
        const struct mc_span kind = mc_json_string(mc_json_get(part, "type"));
        if (!is_text_part(kind))
            return mc_fail(b->err, MC_EARG, 0, "messages[%zu].content[%zu].type: '%.*s' is not supported, only text parts are",
                           at, i, SHOW(kind));
        if (mc_json_type(text) != MC_JSON_STRING)
            return mc_fail(b->err, MC_EARG, 0, "messages[%zu].content[%zu].text: expected a string", at, i);
        if (i > 0) text_buf_add_str(&b->strings, joint);
        text_buf_add_span(&b->strings, mc_json_string(text));
    }
    return MC_OK;
}

static enum mc_code read_role(struct builder *b, const struct mc_json *message, size_t at, enum chat_role *out)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM},           {"developer", CHAT_SYSTEM}, {"user", CHAT_USER},
                 {"assistant", CHAT_ASSISTANT},     {"tool", CHAT_TOOL},        {"function", CHAT_TOOL},
                 {"latest_reminder", CHAT_REMINDER}};
    const struct mc_span name = mc_json_string(mc_json_get(message, "role"));
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (text_is(name, roles[i].name)) {
            *out = roles[i].role;
            return MC_OK;
        }
    return mc_fail(b->err, MC_EARG, 0, "messages[%zu].role: '%.*s' is not one of system, developer, user, assistant, tool", at,
                   SHOW(name));
}

/* A string or nothing. */
static enum mc_code read_string(struct builder *b, const struct mc_json *message, const char *key, size_t at,
                                struct mc_span *out)
{
    const struct mc_json *const v = mc_json_get(message, key);
    if (mc_json_type(v) == MC_JSON_NULL) return MC_OK;
    if (mc_json_type(v) != MC_JSON_STRING) return mc_fail(b->err, MC_EARG, 0, "messages[%zu].%s: expected a string", at, key);
    *out = mc_json_string(v);
    return MC_OK;
}

enum mc_code chat_check_calls(const struct mc_json *calls, size_t at, struct mc_err *err)
{
    if (mc_json_type(calls) == MC_JSON_NULL) return MC_OK;
    if (mc_json_type(calls) != MC_JSON_ARRAY)
        return mc_fail(err, MC_EARG, 0, "messages[%zu].tool_calls: expected an array", at);
    for (size_t i = 0; i < mc_json_count(calls); i++) {
        const struct mc_json *const f = mc_json_get(mc_json_item(calls, i), "function");
        const enum mc_json_type arguments = mc_json_type(mc_json_get(f, "arguments"));
        if (mc_json_string(mc_json_get(f, "name")).size == 0)
            return mc_fail(err, MC_EARG, 0, "messages[%zu].tool_calls[%zu].function.name: expected a string", at, i);
        if (arguments != MC_JSON_STRING && arguments != MC_JSON_OBJECT && arguments != MC_JSON_NULL)
            return mc_fail(err, MC_EARG, 0, "messages[%zu].tool_calls[%zu].function.arguments: expected a string or an object",
                           at, i);
    }
    return MC_OK;
}

static enum mc_code read_message(struct builder *b, const struct mc_json *message, size_t at)
{
    struct chat_message m = {.content = {NULL, 0}};
    if (mc_json_type(message) != MC_JSON_OBJECT) return mc_fail(b->err, MC_EARG, 0, "messages[%zu]: expected an object", at);
    enum mc_code rc = read_role(b, message, at, &m.role);
    if (rc) return rc;
    /* System messages at the very start are one. */
    const bool joins = b->n == 1 && m.role == CHAT_SYSTEM && b->messages[0].role == CHAT_SYSTEM;
    if (joins) text_buf_add_str(&b->strings, "\n\n");
    const size_t from = b->strings.size;
    rc = read_content(b, mc_json_get(message, "content"), m.role == CHAT_ASSISTANT ? "" : "\n\n", at);
    if (rc) return rc;
    if (joins) {
        b->contents[0].to = b->strings.size;
        return MC_OK;
    }
    if (m.role == CHAT_ASSISTANT) {
        m.tool_calls = mc_json_get(message, "tool_calls");
        rc = read_string(b, message, "reasoning", at, &m.reasoning);
        if (!rc) rc = read_string(b, message, "reasoning_content", at, &m.reasoning);
        if (!rc) rc = chat_check_calls(m.tool_calls, at, b->err);
    } else if (m.role == CHAT_TOOL) {
        rc = read_string(b, message, "tool_call_id", at, &m.call_id);
    }
    if (rc) return rc;
    b->contents[b->n] = (struct text_range){from, b->strings.size};
    b->messages[b->n++] = m;
    return MC_OK;
}

static enum mc_code read_messages(struct builder *b)
{
    const struct mc_json *const messages = mc_json_get(b->request, "messages");
    const size_t n = mc_json_count(messages);
    if (mc_json_type(messages) != MC_JSON_ARRAY || n == 0)
        return mc_fail(b->err, MC_EARG, 0, "messages: expected a non-empty array");
    b->messages = malloc((n + 1) * sizeof *b->messages); /* one more may be put in front */
    b->contents = malloc((n + 1) * sizeof *b->contents);
    if (!b->messages || !b->contents) return mc_fail(b->err, MC_ENOMEM, 0, "no memory for %zu messages", n);
    for (size_t i = 0; i < n; i++) {
        const enum mc_code rc = read_message(b, mc_json_item(messages, i), i);
        if (rc) return rc;
    }
    return MC_OK;
}

static enum mc_code read_response_format(struct builder *b, struct chat_conversation *c)
{
    const struct mc_json *const format = mc_json_get(b->request, "response_format");
    if (mc_json_type(format) == MC_JSON_NULL) return MC_OK;
    const struct mc_span type = mc_json_string(mc_json_get(format, "type"));
    if (text_is(type, "text")) return MC_OK;
    if (text_is(type, "json_schema")) {
        c->schema = mc_json_get(mc_json_get(format, "json_schema"), "schema");
        if (mc_json_type(c->schema) != MC_JSON_OBJECT)
            return mc_fail(b->err, MC_EARG, 0, "response_format.json_schema.schema: expected an object");
    } else if (!text_is(type, "json_object")) {
        return mc_fail(b->err, MC_EARG, 0, "response_format.type: '%.*s' is not one of text, json_object, json_schema",
                       SHOW(type));
    }
    c->has_schema = true;
    return MC_OK;
}

/* Tools go onto a first system message, the schema onto the first one there is; if it is missing, an empty one is put in front.
 */
static void place_system(struct builder *b, struct chat_conversation *c)
{
    while (c->schema_at < b->n && b->messages[c->schema_at].role != CHAT_SYSTEM) c->schema_at++;
    const bool wanted = (c->tools && c->schema_at != 0) || (c->has_schema && c->schema_at == b->n);
    if (!wanted) return;
    memmove(b->messages + 1, b->messages, b->n * sizeof *b->messages);
    memmove(b->contents + 1, b->contents, b->n * sizeof *b->contents);
    b->messages[0] = (struct chat_message){.role = CHAT_SYSTEM};
    b->contents[0] = (struct text_range){0, 0};
    b->n++;
    c->schema_at = 0;
}

static enum mc_code check_tools(struct builder *b)
{
    const struct mc_json *const tools = mc_json_get(b->request, "tools");
    if (mc_json_type(tools) == MC_JSON_NULL) return MC_OK;
    struct tool_set *set = NULL;
    const enum mc_code rc = tool_set_create(tools, &set, b->err);
    tool_set_destroy(set);
    return rc;
}

enum mc_code chat_render_request(const struct mc_json *request, const struct chat_controls *controls, struct chat_prompt *out,
                                 struct mc_err *err)
{
    struct builder b = {.request = request, .err = err};
    struct chat_conversation c = {.messages = NULL};
    text_buf_init(&b.strings);
    enum mc_code rc = read_messages(&b);
    if (!rc) rc = check_tools(&b);
    if (!rc) rc = read_response_format(&b, &c);
    if (!rc) rc = text_buf_check(&b.strings, err);
    if (!rc) {
        c.tools = chat_request_tools(request);
        place_system(&b, &c);
        for (size_t i = 0; i < b.n; i++)
            b.messages[i].content = b.contents[i].from == b.contents[i].to
                                        ? text_span("", 0)
                                        : text_span(b.strings.data + b.contents[i].from, b.contents[i].to - b.contents[i].from);
        c.messages = b.messages;
        c.n = b.n;
        rc = chat_conversation_render(&c, controls, out, err);
    }
    text_buf_deinit(&b.strings);
    free(b.messages);
    free(b.contents);
    return rc;
}

const struct mc_json *chat_request_tools(const struct mc_json *request)
{
    const struct mc_json *const tools = mc_json_get(request, "tools");
    if (mc_json_type(tools) != MC_JSON_ARRAY || mc_json_count(tools) == 0) return NULL;
    return text_is(mc_json_string(mc_json_get(request, "tool_choice")), "none") ? NULL : tools;
}

/* ---- thinking and effort ---- */

/* What the fields of a request say together: off wins, effort means on. */
struct wish {
    bool off, on;
    const char *effort_field; /* the first that said something */
    enum chat_effort effort;
    size_t reasoning_max;
};

static enum mc_code read_switch(const struct mc_json *v, const char *field, struct wish *w, struct mc_err *err)
{
    if (mc_json_type(v) == MC_JSON_NULL) return MC_OK;
    if (mc_json_type(v) != MC_JSON_BOOL) return mc_fail(err, MC_EARG, 0, "%s: expected true or false", field);
    if (mc_json_bool(v))
        w->on = true;
    else
        w->off = true;
    return MC_OK;
}

static enum mc_code read_effort(const struct mc_json *v, const char *field, struct wish *w, struct mc_err *err)
{
    static const struct {
        const char *word;
        enum chat_effort effort;
    } words[] = {{"minimal", CHAT_EFFORT_LOW}, {"low", CHAT_EFFORT_LOW},    {"medium", CHAT_EFFORT_LOW},
                 {"high", CHAT_EFFORT_HIGH},   {"xhigh", CHAT_EFFORT_HIGH}, {"max", CHAT_EFFORT_MAX}};
    if (mc_json_type(v) == MC_JSON_NULL) return MC_OK;
    const struct mc_span word = mc_json_string(v);
    if (text_is(word, "none")) {
        w->off = true;
        return MC_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!text_is(word, words[i].word)) continue;
        if (!w->effort_field) w->effort = words[i].effort;
        if (!w->effort_field) w->effort_field = field;
        return MC_OK;
    }
    return mc_fail(err, MC_EARG, 0, "%s: '%.*s' is not one of none, minimal, low, medium, high, xhigh, max", field, SHOW(word));
}

/* {"type": "enabled" | "adaptive" | "disabled", "budget_tokens": n}, or a plain truth value. */
static enum mc_code read_thinking(const struct mc_json *v, struct wish *w, struct mc_err *err)
{
    if (mc_json_type(v) != MC_JSON_OBJECT) return read_switch(v, "thinking", w, err);
    const struct mc_span type = mc_json_string(mc_json_get(v, "type"));
    const int64_t budget = mc_json_int(mc_json_get(v, "budget_tokens"));
    if (text_is(type, "disabled"))
        w->off = true;
    else if (text_is(type, "enabled") || text_is(type, "adaptive"))
        w->on = true;
    else
        return mc_fail(err, MC_EARG, 0, "thinking.type: '%.*s' is not one of enabled, adaptive, disabled", SHOW(type));
    if (budget > 0) w->reasoning_max = (size_t)budget;
    return MC_OK;
}

enum mc_code chat_request_controls(const struct mc_json *request, struct chat_controls *controls, struct mc_err *err)
{
    struct wish w = {.off = false};
    const struct mc_json *const template = mc_json_get(request, "chat_template_kwargs");
    const struct mc_json *const drop = mc_json_get(request, "drop_thinking");
    enum mc_code rc = read_effort(mc_json_get(request, "reasoning_effort"), "reasoning_effort", &w, err);
    if (!rc) rc = read_effort(mc_json_get(mc_json_get(request, "output_config"), "effort"), "output_config.effort", &w, err);
    if (!rc) rc = read_effort(mc_json_get(mc_json_get(request, "reasoning"), "effort"), "reasoning.effort", &w, err);
    if (!rc) rc = read_thinking(mc_json_get(request, "thinking"), &w, err);
    if (!rc) rc = read_switch(mc_json_get(request, "enable_thinking"), "enable_thinking", &w, err);
    if (!rc) rc = read_switch(mc_json_get(request, "think"), "think", &w, err);
    if (!rc) rc = read_switch(mc_json_get(template, "enable_thinking"), "chat_template_kwargs.enable_thinking", &w, err);
    if (!rc) rc = read_switch(mc_json_get(template, "thinking"), "chat_template_kwargs.thinking", &w, err);
    if (rc) return rc;
    if (mc_json_type(drop) != MC_JSON_NULL && mc_json_type(drop) != MC_JSON_BOOL)
        return mc_fail(err, MC_EARG, 0, "drop_thinking: expected true or false");
    if (w.off)
        controls->thinking = false;
    else if (w.on || w.effort_field)
        controls->thinking = true;
    if (w.effort_field) controls->effort = w.effort;
    if (w.reasoning_max > 0) controls->reasoning_max = w.reasoning_max;
    if (drop && mc_json_type(drop) == MC_JSON_BOOL) controls->keep_thinking = !mc_json_bool(drop);
    return MC_OK;
}
