/* chat_form.c - the renderer: conversation -> prompt text and who wrote which byte of it.
 *
 *   BOS [effort] [system] [tools] [response format]
 *   <User> blocks <Assistant> <think> reasoning </think> content [calls] EOS        old turns: </think> alone
 *   <User> blocks <Assistant> <think>                                               generation starts here
 *
 * A run of user and tool messages is one turn. The message before an answer writes <Assistant> and the think tag, not the
 * answer itself. Every byte that a request brought is noted as untrusted. */
#include "runtime/text/chat_form.h"

#include "io/gguf/gguf.h"
#include "platform/base/json.h"
#include "runtime/text/chat_conversation.h"
#include "runtime/text/chat_strings.h"
#include "runtime/text/json_text.h"

#include <stdlib.h>

struct renderer {
    const struct chat_conversation *c;
    const struct chat_controls *controls;
    struct chat_prompt *out;
    bool keep;                   /* old turns keep their reasoning */
    size_t last_user;            /* where the last user turn begins; SIZE_MAX if there is none */
    const struct mc_json *calls; /* of the last assistant message that had any */
};

/* Where a call stands among its sisters, or a tool message among the results of its turn. */
struct place {
    struct mc_span id;
    size_t call, message;
};

void chat_prompt_init(struct chat_prompt *p)
{
    *p = (struct chat_prompt){.untrusted = NULL};
    text_buf_init(&p->text);
}

void chat_prompt_deinit(struct chat_prompt *p)
{
    text_buf_deinit(&p->text);
    free(p->untrusted);
    chat_prompt_init(p);
}

static void add(struct renderer *r, const char *trusted)
{
    text_buf_add_str(&r->out->text, trusted);
}

/* Notes that everything since `from` came from outside. */
static void note_untrusted(struct renderer *r, size_t from)
{
    struct chat_prompt *const p = r->out;
    if (p->text.size == from) return;
    if (p->n_untrusted == p->untrusted_capacity) {
        const size_t capacity = p->untrusted_capacity ? 2 * p->untrusted_capacity : 16;
        struct text_range *const ranges = realloc(p->untrusted, capacity * sizeof *ranges);
        if (!ranges) {
            p->text.failed = true;
            return;
        }
        p->untrusted = ranges;
        p->untrusted_capacity = capacity;
    }
    p->untrusted[p->n_untrusted++] = (struct text_range){from, p->text.size};
}

static void add_foreign(struct renderer *r, struct mc_span text)
{
    const size_t from = r->out->text.size;
    text_buf_add_span(&r->out->text, text);
    note_untrusted(r, from);
}

static void add_foreign_json(struct renderer *r, const struct mc_json *v)
{
    const size_t from = r->out->text.size;
    json_text_value(&r->out->text, v);
    note_untrusted(r, from);
}

/* ---- calls of an answer ---- */

static void add_object(struct renderer *r, const struct mc_json *object)
{
    void *it = NULL;
    struct mc_span key;
    const struct mc_json *value;
    for (bool first = true; mc_json_next(object, &it, &key, &value); first = false) {
        const bool is_string = mc_json_type(value) == MC_JSON_STRING;
        if (!first) add(r, "\n");
        add(r, "<" CHAT_DSML "parameter name=\"");
        add_foreign(r, key);
        add(r, is_string ? "\" string=\"true\">" : "\" string=\"false\">");
        if (is_string)
            add_foreign(r, mc_json_string(value));
        else
            add_foreign_json(r, value);
        add(r, "</" CHAT_DSML "parameter>");
    }
}

/* Arguments that are no text of an object go out as one parameter of that name. */
static void add_arguments(struct renderer *r, const struct mc_json *arguments)
{
    if (mc_json_type(arguments) != MC_JSON_STRING) { /* an object, or nothing */
        add_object(r, arguments);
        return;
    }
    struct mc_json *parsed = NULL;
    const struct mc_span text = mc_json_string(arguments);
    struct mc_err why = {.code = MC_OK};
    if (mc_json_parse(text, &parsed, &why) == MC_OK && mc_json_type(parsed) == MC_JSON_OBJECT) {
        add_object(r, parsed);
    } else {
        r->out->text.failed |= why.code == MC_ENOMEM;
        add(r, "<" CHAT_DSML "parameter name=\"arguments\" string=\"true\">"); /* the name is ours, so trusted */
        add_foreign(r, text);
        add(r, "</" CHAT_DSML "parameter>");
    }
    mc_json_destroy(parsed);
}

static void add_calls(struct renderer *r, const struct mc_json *calls)
{
    add(r, "\n\n<" CHAT_DSML "tool_calls>\n");
    for (size_t i = 0; i < mc_json_count(calls); i++) {
        const struct mc_json *const f = mc_json_get(mc_json_item(calls, i), "function");
        add(r, i > 0 ? "\n<" CHAT_DSML "invoke name=\"" : "<" CHAT_DSML "invoke name=\"");
        add_foreign(r, mc_json_string(mc_json_get(f, "name")));
        add(r, "\">\n");
        add_arguments(r, mc_json_get(f, "arguments"));
        add(r, "\n</" CHAT_DSML "invoke>");
    }
    add(r, "\n</" CHAT_DSML "tool_calls>");
}

/* ---- turns ---- */

static bool in_user_turn(enum chat_role role)
{
    return role == CHAT_USER || role == CHAT_TOOL;
}

static int compare_ids(const void *pa, const void *pb)
{
    const struct place *const a = pa, *const b = pb;
    const size_t n = a->id.size < b->id.size ? a->id.size : b->id.size;
    const int d = n ? memcmp(a->id.data, b->id.data, n) : 0;
    if (d) return d;
    return a->id.size < b->id.size ? -1 : a->id.size > b->id.size;
}

static int compare_places(const void *pa, const void *pb)
{
    const struct place *const a = pa, *const b = pb;
    const int d = compare_ids(a, b);
    return d ? d : a->call < b->call ? -1 : a->call > b->call;
}

static int compare_calls(const void *pa, const void *pb)
{
    const struct place *const a = pa, *const b = pb;
    if (a->call != b->call) return a->call < b->call ? -1 : 1;
    return a->message < b->message ? -1 : a->message > b->message;
}

/* results[0..n) are the tool messages of a turn: puts them in the order of the calls they answer; unknown ones count as
 * answers to the first call. */
static void order_results(struct renderer *r, struct place *results, size_t n)
{
    const size_t n_calls = mc_json_count(r->calls);
    struct place *const calls = n_calls > 0 ? malloc(n_calls * sizeof *calls) : NULL;
    if (n_calls > 0 && !calls) {
        r->out->text.failed = true;
        return;
    }
    for (size_t i = 0; i < n_calls; i++)
        calls[i] = (struct place){mc_json_string(mc_json_get(mc_json_item(r->calls, i), "id")), i, 0};
    if (n_calls > 0) qsort(calls, n_calls, sizeof *calls, compare_places);
    for (size_t i = 0; i < n; i++) {
        results[i].id = r->c->messages[results[i].message].call_id;
        const struct place *call = n_calls > 0 ? bsearch(&results[i], calls, n_calls, sizeof *calls, compare_ids) : NULL;
        while (call && call + 1 < calls + n_calls && compare_ids(call, call + 1) == 0)
            call++; /* of equal ids the last counts */
        results[i].call = call ? call->call : 0;
    }
    qsort(results, n, sizeof *results, compare_calls);
    free(calls);
}

static void add_block(struct renderer *r, const struct chat_message *m)
{
    if (m->role == CHAT_TOOL) add(r, "<tool_result>");
    add_foreign(r, m->content);
    if (m->role == CHAT_TOOL) add(r, "</tool_result>");
}

/* The messages [from, to), at least one; results in the order of their calls, texts where they stand. */
static void add_blocks(struct renderer *r, size_t from, size_t to)
{
    const struct chat_message *const m = r->c->messages;
    size_t n = 0, next = 0;
    struct place *const results = calloc(to - from, sizeof *results);
    if (!results) {
        r->out->text.failed = true;
        return;
    }
    for (size_t i = from; i < to; i++)
        if (m[i].role == CHAT_TOOL) results[n++].message = i;
    if (n > 1) order_results(r, results, n);
    for (size_t i = from; i < to; i++) {
        if (i > from) add(r, "\n\n");
        add_block(r, m[i].role == CHAT_TOOL && next < n ? &m[results[next++].message] : &m[i]);
    }
    free(results);
}

static void open_answer(struct renderer *r, bool thinking)
{
    add(r, CHAT_ANSWER_MARK);
    add(r, thinking ? CHAT_THINK_OPEN : CHAT_THINK_CLOSE);
    r->out->in_reasoning = thinking;
}

/* The user turn that begins at `from`; returns where it ends. */
static size_t add_user_turn(struct renderer *r, size_t from)
{
    const struct chat_conversation *const c = r->c;
    size_t to = from + 1;
    while (to < c->n && in_user_turn(c->messages[to].role)) to++;
    add(r, CHAT_USER_MARK);
    add_blocks(r, from, to);
    if (to == c->n || c->messages[to].role == CHAT_ASSISTANT || c->messages[to].role == CHAT_REMINDER)
        open_answer(r, r->controls->thinking && (r->keep || from == r->last_user));
    return to;
}

static void add_system(struct renderer *r, size_t at)
{
    const struct chat_conversation *const c = r->c;
    add_foreign(r, c->messages[at].content);
    if (c->tools && at == 0) {
        add(r, "\n\n");
        add(r, CHAT_TOOLS_HEAD);
        for (size_t i = 0; i < mc_json_count(c->tools); i++) {
            if (i > 0) add(r, "\n");
            add_foreign_json(r, mc_json_get(mc_json_item(c->tools, i), "function"));
        }
        add(r, CHAT_TOOLS_TAIL);
    }
    if (c->has_schema && at == c->schema_at) {
        add(r, "\n\n");
        add(r, CHAT_RESPONSE_FORMAT);
        if (c->schema)
            add_foreign_json(r, c->schema);
        else
            add_foreign(r, text_span_str("{\"type\": \"object\"}"));
    }
}

static void add_answer(struct renderer *r, size_t at)
{
    const struct chat_message *const m = &r->c->messages[at];
    const bool has_calls = mc_json_count(m->tool_calls) > 0;
    if (r->controls->thinking && (r->keep || r->last_user == SIZE_MAX || at > r->last_user)) {
        add_foreign(r, m->reasoning);
        add(r, CHAT_THINK_CLOSE);
    }
    add_foreign(r, m->content);
    if (has_calls) {
        add_calls(r, m->tool_calls);
        r->calls = m->tool_calls;
    }
    if (has_calls || at + 1 < r->c->n) add(r, CHAT_EOS); /* else a prefill that generation continues */
}

static const char *effort_text(const struct chat_controls *c)
{
    const bool preview = c->profile == CHAT_PROFILE_PREVIEW;
    if (!c->thinking || c->effort == CHAT_EFFORT_LOW) return "";
    if (c->effort == CHAT_EFFORT_HIGH) return preview ? "" : CHAT_EFFORT_ABSOLUTE;
    return preview ? CHAT_EFFORT_ABSOLUTE : CHAT_EFFORT_BEYOND;
}

static void add_messages(struct renderer *r)
{
    const struct chat_conversation *const c = r->c;
    add(r, CHAT_BOS);
    add(r, effort_text(r->controls));
    for (size_t i = 0; i < c->n;) {
        r->out->in_reasoning = false;
        switch (c->messages[i].role) {
        case CHAT_USER:
        case CHAT_TOOL:
            i = add_user_turn(r, i);
            continue;
        case CHAT_SYSTEM:
            add_system(r, i);
            break;
        case CHAT_ASSISTANT:
            add_answer(r, i);
            break;
        case CHAT_REMINDER:
            add(r, CHAT_LATEST);
            add_foreign(r, c->messages[i].content);
            break;
        }
        i++;
    }
    const struct chat_message *const last = &c->messages[c->n - 1];
    const bool is_open = in_user_turn(last->role) || (last->role == CHAT_ASSISTANT && mc_json_count(last->tool_calls) == 0);
    if (!is_open) open_answer(r, r->controls->thinking);
}

enum mc_code chat_conversation_render(const struct chat_conversation *c, const struct chat_controls *controls,
                                      struct chat_prompt *out, struct mc_err *err)
{
    if (c->n == 0) return mc_fail(err, MC_EARG, 0, "messages: at least one message is needed");
    struct renderer r = {.c = c, .controls = controls, .out = out, .last_user = SIZE_MAX};
    r.keep = controls->keep_thinking || c->tools;
    for (size_t i = 0; i < c->n; i++)
        if (in_user_turn(c->messages[i].role) && (i == 0 || !in_user_turn(c->messages[i - 1].role))) r.last_user = i;
    text_buf_clear(&out->text);
    out->n_untrusted = 0;
    add_messages(&r);
    return text_buf_check(&out->text, err);
}

enum mc_code chat_render(const struct chat_message *messages, size_t n, const struct chat_controls *controls,
                         struct chat_prompt *out, struct mc_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const enum mc_code rc = chat_check_calls(messages[i].tool_calls, i, err);
        if (rc) return rc;
    }
    const struct chat_conversation c = {.messages = messages, .n = n};
    return chat_conversation_render(&c, controls, out, err);
}

bool chat_think_word(const char *word, struct chat_controls *c)
{
    static const struct {
        const char *word;
        bool thinking;
        enum chat_effort effort;
    } words[] = {{"off", false, CHAT_EFFORT_LOW},
                 {"on", true, CHAT_EFFORT_LOW},
                 {"low", true, CHAT_EFFORT_LOW},
                 {"high", true, CHAT_EFFORT_HIGH},
                 {"max", true, CHAT_EFFORT_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(word, words[i].word) == 0) {
            c->thinking = words[i].thinking;
            c->effort = words[i].effort;
            return true;
        }
    return false;
}

static bool holds(struct mc_span text, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.size; i++)
        if (memcmp(text.data + i, word, n) == 0) return true;
    return false;
}

enum chat_profile chat_profile_of(const struct gguf *g)
{
    const struct gguf_value *const template = gguf_find(g, "tokenizer.chat_template");
    const struct gguf_value *const name = gguf_find(g, "general.name");
    if (template && template->type == GGUF_STRING && !holds(template->data, "Beyond maximum") &&
        holds(template->data, "Absolute maximum"))
        return CHAT_PROFILE_PREVIEW;
    if (name && name->type == GGUF_STRING &&
        (holds(name->data, "preview") || holds(name->data, "Preview") || holds(name->data, "PREVIEW")))
        return CHAT_PROFILE_PREVIEW;
    return CHAT_PROFILE_0731;
}

enum mc_code chat_encode(const struct tokenizer *t, const struct chat_prompt *p, struct token_list *out, struct mc_err *err)
{
    return tokenizer_encode(t, text_buf_span(&p->text), TOKENIZER_MASKED, p->untrusted, p->n_untrusted, out, err);
}
