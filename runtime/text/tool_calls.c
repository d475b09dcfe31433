/* tool_calls.c - see tool_calls.h
 *
 *   BETWEEN -- <invoke name=".."> --> BODY -- <parameter ..> --> VALUE
 *      ^  \                          ^ |  \                        |
 *      |   end of block              | |   '{' --> JSON            | </parameter>, or where that is missing, the next tag
 *      +------- </invoke>, next <invoke, end of block ------------ +--> BODY
 *
 * A string value is sent as it comes; all other values wait for their end, because only then is it known whether they are
 * JSON. What cannot be a block drops the open call; without a complete one before it the whole block is text. */
#include "runtime/text/tool_calls.h"

#include "platform/base/json.h"
#include "runtime/text/json_text.h"
#include "runtime/text/markers.h"
#include "runtime/text/tool_set.h"

#define TAG_BYTES_MAX 4096

/* What stands between a tag's name and its '>'. */
struct tag {
    struct mc_span name;
    enum { TAG_UNSAID, TAG_STRING, TAG_NOT_STRING } is_string;
    size_t size; /* with the '>' */
};

enum tag_result { TAG_OK, TAG_CUT, TAG_BAD };

static bool is_attribute_byte(uint8_t b)
{
    return (uint8_t)((b | 0x20) - 'a') < 26 || b == '_' || b == '-';
}

/* One attribute at *at: key="value". Moves *at behind it. */
static enum tag_result read_attribute(struct mc_span s, size_t *at, struct tag *tag)
{
    size_t i = *at;
    while (i < s.size && is_attribute_byte(s.data[i])) i++;
    const struct mc_span key = text_span(s.data + *at, i - *at);
    if (i == s.size) return TAG_CUT;
    if (key.size == 0 || s.data[i] != '=') return TAG_BAD;
    if (++i == s.size) return TAG_CUT;
    if (s.data[i] != '"') return TAG_BAD;
    const uint8_t *const start = s.data + i + 1, *const end = memchr(start, '"', s.size - i - 1);
    if (!end) return TAG_CUT;
    const struct mc_span value = text_span(start, (size_t)(end - start));
    if (text_is(key, "name") && !tag->name.data) tag->name = value;
    if (text_is(key, "string") && text_is(value, "true")) tag->is_string = TAG_STRING;
    if (text_is(key, "string") && text_is(value, "false")) tag->is_string = TAG_NOT_STRING;
    *at = (size_t)(end + 1 - s.data);
    return TAG_OK;
}

/* A name that no JSON reader refuses as a key. */
static bool is_good_name(struct mc_span name)
{
    return name.size > 0 && !memchr(name.data, '\0', name.size);
}

/* s begins right after the tag's name. */
static enum tag_result read_tag(struct mc_span s, struct tag *tag)
{
    const bool is_cut = s.size > TAG_BYTES_MAX;
    *tag = (struct tag){.name = {NULL, 0}};
    if (is_cut) s.size = TAG_BYTES_MAX;
    enum tag_result rc = TAG_OK;
    for (size_t at = 0; rc == TAG_OK; rc = read_attribute(s, &at, tag)) {
        if (at < s.size && s.data[at] != '>' && at == 0 && !marker_is_space(s.data[at])) return TAG_BAD;
        at = marker_skip_space(s, at);
        if (at == s.size) {
            rc = TAG_CUT;
            break;
        }
        if (s.data[at] == '>') {
            tag->size = at + 1;
            return is_good_name(tag->name) ? TAG_OK : TAG_BAD;
        }
    }
    return rc == TAG_CUT && is_cut ? TAG_BAD : rc;
}

/* ---- events ---- */

static void send(struct call_parser *p, struct mc_span piece)
{
    if (piece.size > 0 && p->sink.arguments) p->sink.arguments(p->sink.user, piece);
}

static void send_str(struct call_parser *p, const char *s)
{
    send(p, text_span_str(s));
}

/* Sends p->out and empties it. */
static void send_out(struct call_parser *p)
{
    send(p, text_buf_span(&p->out));
    text_buf_clear(&p->out);
}

static void begin_call(struct call_parser *p, struct mc_span folded_name)
{
    const struct mc_span name = marker_unfold(folded_name, &p->scratch);
    p->tool = tool_set_find(p->tools, name);
    text_buf_clear(&p->names);
    p->n_parameters = p->n_sent = 0;
    p->is_whole = false;
    p->state = CALL_BODY;
    if (p->sink.begin) p->sink.begin(p->sink.user, name);
}

static void complete_call(struct call_parser *p)
{
    if (!p->is_whole) send_str(p, p->n_sent > 0 ? "}" : "{}");
    p->state = CALL_BETWEEN;
    p->n_complete++;
    if (p->sink.end) p->sink.end(p->sink.user, true);
}

/* What was a call is none: the output is over, or the block is text. */
static enum call_status give_up(struct call_parser *p)
{
    if (p->state != CALL_BETWEEN && p->sink.end) p->sink.end(p->sink.user, false);
    p->state = CALL_BETWEEN;
    return p->n_complete > 0 ? CALLS_DONE : CALLS_JUNK;
}

/* ---- parameters ---- */

/* Notes the name; false if the call has one of that name already. */
static bool note_name(struct call_parser *p)
{
    const struct mc_span name = text_buf_span(&p->name);
    for (size_t i = 0; i < p->names.size;) { /* "name" "name" ..., names hold no quotes */
        const char *const start = p->names.data + i + 1, *const end = memchr(start, '"', p->names.size - i - 1);
        if (text_same(text_span(start, (size_t)(end - start)), name)) return false;
        i = (size_t)(end + 1 - p->names.data);
    }
    text_buf_add_char(&p->names, '"');
    text_buf_add_span(&p->names, name);
    text_buf_add_char(&p->names, '"');
    return !p->names.failed;
}

static void send_key(struct call_parser *p)
{
    text_buf_add_str(&p->out, p->n_sent++ > 0 ? ", " : "{");
    json_text_string(&p->out, text_buf_span(&p->name));
    text_buf_add_str(&p->out, ": ");
    send_out(p);
}

static void begin_parameter(struct call_parser *p, const struct tag *tag)
{
    text_buf_clear(&p->name);
    text_buf_add_span(&p->name, marker_unfold(tag->name, &p->scratch));
    const struct mc_span name = text_buf_span(&p->name);
    p->is_wrapper = p->n_parameters == 0 && p->tool != SIZE_MAX && (text_is(name, "arguments") || text_is(name, "input")) &&
                    !tool_set_has_parameter(p->tools, p->tool, name);
    p->is_dropped = !note_name(p) || p->is_whole;
    p->value = tag->is_string == TAG_STRING                      ? CALL_VALUE_STRING
               : tag->is_string == TAG_NOT_STRING                ? CALL_VALUE_JSON
               : tool_set_is_not_string(p->tools, p->tool, name) ? CALL_VALUE_GUESS
                                                                 : CALL_VALUE_STRING;
    p->is_held = p->is_wrapper || p->value != CALL_VALUE_STRING;
    p->n_parameters++;
    p->scanned = 0;
    p->state = CALL_VALUE;
    if (p->is_dropped || p->is_held) return;
    send_key(p);
    send_str(p, "\"");
}

static struct mc_span trim(struct mc_span s)
{
    const size_t from = marker_skip_space(s, 0);
    while (s.size > from && marker_is_space(s.data[s.size - 1])) s.size--;
    return text_span(s.data + from, s.size - from);
}

/* Type of a JSON text; false if it is none. */
static bool json_type_of(struct mc_span text, enum mc_json_type *type)
{
    struct mc_json *v = NULL;
    if (mc_json_parse(text, &v, NULL)) return false;
    *type = mc_json_type(v);
    mc_json_destroy(v);
    return true;
}

static bool has_known_keys(const struct call_parser *p, const struct mc_json *object)
{
    void *it = NULL;
    struct mc_span key;
    const struct mc_json *value;
    while (mc_json_next(object, &it, &key, &value))
        if (!tool_set_has_parameter(p->tools, p->tool, key)) return false;
    return true;
}

/* A parameter that holds all arguments, as an object or as a string of one: sends them. False if it is not so. */
static bool send_wrapped(struct call_parser *p, struct mc_span value)
{
    struct mc_json *outer = NULL, *inner = NULL;
    struct mc_span text = trim(value);
    bool sent = false;
    if (mc_json_parse(text, &outer, NULL)) return false;
    const struct mc_json *object = outer;
    if (mc_json_type(outer) == MC_JSON_STRING) {
        text = trim(mc_json_string(outer));
        object = mc_json_parse(text, &inner, NULL) ? NULL : inner;
    }
    if (mc_json_type(object) == MC_JSON_OBJECT && has_known_keys(p, object)) {
        send(p, text);
        p->is_whole = sent = true;
    }
    mc_json_destroy(inner);
    mc_json_destroy(outer);
    return sent;
}

/* The whole value of a held parameter. */
static void send_held(struct call_parser *p, struct mc_span folded)
{
    const struct mc_span value = marker_unfold(folded, &p->scratch);
    enum mc_json_type type;
    if (p->is_dropped || (p->is_wrapper && send_wrapped(p, value))) return;
    send_key(p);
    if (p->value != CALL_VALUE_STRING && json_type_of(trim(value), &type) &&
        (p->value == CALL_VALUE_JSON || type != MC_JSON_STRING)) {
        send(p, trim(value));
        return;
    }
    json_text_string(&p->out, value);
    send_out(p);
}

static void send_part(struct call_parser *p, struct mc_span folded)
{
    if (p->is_dropped) return;
    json_text_escape(&p->out, marker_unfold(folded, &p->scratch));
    send_out(p);
}

/* ---- states; each takes in what it can from in[*used..] and says whether it got further ---- */

#define VALUE_ENDS (MARKER_PARAMETER_END | MARKER_PARAMETER_NAME | MARKER_INVOKE_END | MARKER_BLOCK_END)
#define JSON_ENDS  (MARKER_INVOKE_END | MARKER_INVOKE | MARKER_BLOCK_END)

static bool step_value(struct call_parser *p, struct mc_span in, size_t *used)
{
    const struct mc_span s = text_span(in.data + *used, in.size - *used);
    size_t at, size;
    enum marker which;
    if (marker_find(s, p->scanned, VALUE_ENDS, &at, &which, &size) == MARKER_FOUND) {
        const bool is_proper = which == MARKER_PARAMETER_END;
        const struct mc_span value = text_span(s.data, at - (!is_proper && at > 0 && s.data[at - 1] == '\n'));
        if (p->is_held) {
            send_held(p, value);
        } else {
            send_part(p, value);
            if (!p->is_dropped) send_str(p, "\"");
        }
        *used += is_proper ? at + size : at;
        p->state = CALL_BODY;
        return true;
    }
    if (at > 0 && s.data[at - 1] == '\n') at--; /* may belong to a tag that closes the value without saying so */
    p->scanned = at;
    if (p->is_held) return false;
    send_part(p, text_span(s.data, at));
    *used += at;
    p->scanned = 0;
    return false;
}

static void send_json_body(struct call_parser *p, struct mc_span folded)
{
    const struct mc_span text = trim(marker_unfold(folded, &p->scratch));
    enum mc_json_type type;
    if (json_type_of(text, &type) && type == MC_JSON_OBJECT) {
        send(p, text);
    } else {
        text_buf_add_str(&p->out, "{\"arguments\": ");
        json_text_string(&p->out, text);
        text_buf_add_char(&p->out, '}');
        send_out(p);
    }
    p->is_whole = true;
    complete_call(p);
}

static bool step_json(struct call_parser *p, struct mc_span in, size_t *used)
{
    const struct mc_span s = text_span(in.data + *used, in.size - *used);
    size_t at, size;
    enum marker which;
    if (marker_find(s, p->scanned, JSON_ENDS, &at, &which, &size) != MARKER_FOUND) {
        p->scanned = at;
        return false;
    }
    send_json_body(p, text_span(s.data, at));
    *used += which == MARKER_INVOKE_END ? at + size : at;
    return true;
}

static bool step_body(struct call_parser *p, struct mc_span in, size_t *used, enum call_status *status)
{
    struct tag tag;
    enum marker which;
    size_t size;
    *used = marker_skip_space(in, *used);
    const struct mc_span s = text_span(in.data + *used, in.size - *used);
    if (s.size == 0) return false;
    if (s.data[0] == '{' && p->n_parameters == 0) {
        p->state = CALL_JSON;
        p->scanned = 0;
        return true;
    }
    const enum marker_match m = marker_match(
        s, MARKER_PARAMETER | MARKER_PARAMETER_END | MARKER_INVOKE | MARKER_INVOKE_END | MARKER_BLOCK_END, &which, &size);
    if (m == MARKER_PART) return false;
    enum tag_result rc = m == MARKER_FOUND ? TAG_OK : TAG_BAD;
    if (rc == TAG_OK && which == MARKER_PARAMETER) {
        rc = read_tag(text_span(s.data + size, s.size - size), &tag);
        if (rc == TAG_CUT) return false;
        if (rc == TAG_OK) begin_parameter(p, &tag);
        size += tag.size;
    } else if (rc == TAG_OK && which != MARKER_PARAMETER_END) { /* a second </parameter> does no harm */
        complete_call(p);
        if (which != MARKER_INVOKE_END) size = 0;
    }
    if (rc == TAG_BAD)
        *status = give_up(p);
    else
        *used += size;
    return rc == TAG_OK;
}

static bool step_between(struct call_parser *p, struct mc_span in, size_t *used, enum call_status *status)
{
    struct tag tag;
    enum marker which;
    size_t size;
    *used = marker_skip_space(in, *used);
    const struct mc_span s = text_span(in.data + *used, in.size - *used);
    const enum marker_match m = marker_match(s, MARKER_INVOKE | MARKER_BLOCK_END, &which, &size);
    if (s.size == 0 || m == MARKER_PART) return false;
    if (m == MARKER_FOUND && which == MARKER_BLOCK_END) {
        *used += size;
        p->is_closed = true;
        *status = p->n_complete > 0 ? CALLS_DONE : CALLS_EMPTY;
        return false;
    }
    const enum tag_result rc = m == MARKER_NO ? TAG_BAD : read_tag(text_span(s.data + size, s.size - size), &tag);
    if (rc == TAG_BAD) *status = give_up(p);
    if (rc != TAG_OK) return false;
    begin_call(p, tag.name);
    *used += size + tag.size;
    return true;
}

void call_parser_init(struct call_parser *p, const struct tool_set *tools, const struct call_sink *sink)
{
    *p = (struct call_parser){.tools = tools, .sink = *sink, .state = CALL_BETWEEN, .tool = SIZE_MAX};
}

void call_parser_deinit(struct call_parser *p)
{
    text_buf_deinit(&p->names);
    text_buf_deinit(&p->name);
    text_buf_deinit(&p->scratch);
    text_buf_deinit(&p->out);
}

enum call_status call_parser_step(struct call_parser *p, struct mc_span in, size_t *used)
{
    enum call_status status = CALLS_MORE;
    bool got_further = true;
    *used = 0;
    while (got_further) switch (p->state) {
        case CALL_BETWEEN:
            got_further = step_between(p, in, used, &status);
            break;
        case CALL_BODY:
            got_further = step_body(p, in, used, &status);
            break;
        case CALL_VALUE:
            got_further = step_value(p, in, used);
            break;
        case CALL_JSON:
            got_further = step_json(p, in, used);
            break;
        }
    return status;
}

enum call_status call_parser_finish(struct call_parser *p, struct mc_span rest, bool was_stopped)
{
    enum mc_json_type type;
    const bool is_tag = marker_skip_space(rest, 0) < rest.size; /* a tag was cut */
    if (was_stopped && p->state == CALL_BODY && !is_tag)
        complete_call(p);
    else if (was_stopped && p->state == CALL_JSON && json_type_of(trim(marker_unfold(rest, &p->scratch)), &type) &&
             type == MC_JSON_OBJECT)
        send_json_body(p, rest);
    const enum call_status status = give_up(p);
    return status == CALLS_JUNK && !was_stopped ? CALLS_EMPTY : status;
}

enum mc_code call_parser_check(const struct call_parser *p, struct mc_err *err)
{
    const struct text_buf *const all[] = {&p->names, &p->name, &p->scratch, &p->out};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const enum mc_code rc = text_buf_check(all[i], err);
        if (rc) return rc;
    }
    return MC_OK;
}
