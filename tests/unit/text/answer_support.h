/* answer_support.h - collects the events of an answer stream into one message, and checks their order on the way. */
#ifndef TESTS_UNIT_TEXT_ANSWER_SUPPORT_H
#define TESTS_UNIT_TEXT_ANSWER_SUPPORT_H

#include "runtime/text/answer_stream.h"
#include "runtime/text/json_text.h"
#include "runtime/text/text_buf.h"
#include "runtime/text/utf8.h"

/* The whole message as one text, so that two can be compared and shown:
 * R reasoning, C content, then for each complete call N name and A arguments, all as JSON strings. */
struct answer_log {
    struct text_buf reasoning, content, calls, name, arguments;
    size_t next_idx;
    bool in_call, is_bad; /* is_bad: a promise of answer_stream.h was broken */
    size_t n_events;
};

static inline void answer_log_init(struct answer_log *l)
{
    *l = (struct answer_log){.next_idx = 0};
}

static inline void answer_log_deinit(struct answer_log *l)
{
    text_buf_deinit(&l->reasoning);
    text_buf_deinit(&l->content);
    text_buf_deinit(&l->calls);
    text_buf_deinit(&l->name);
    text_buf_deinit(&l->arguments);
}

static inline void al_text(struct answer_log *l, struct text_buf *to, struct mc_span text)
{
    l->n_events++;
    if (l->in_call || text.size == 0 || !utf8_is_valid(text)) l->is_bad = true;
    text_buf_add_span(to, text);
}

static inline void al_reasoning(void *user, struct mc_span text)
{
    struct answer_log *const l = user;
    al_text(l, &l->reasoning, text);
}

static inline void al_content(void *user, struct mc_span text)
{
    struct answer_log *const l = user;
    al_text(l, &l->content, text);
}

static inline void al_begin(void *user, size_t idx, struct mc_span name)
{
    struct answer_log *const l = user;
    if (l->in_call || idx != l->next_idx || name.size == 0 || !utf8_is_valid(name)) l->is_bad = true;
    l->in_call = true;
    text_buf_clear(&l->name);
    text_buf_clear(&l->arguments);
    text_buf_add_span(&l->name, name);
}

static inline void al_arguments(void *user, size_t idx, struct mc_span piece)
{
    struct answer_log *const l = user;
    if (!l->in_call || idx != l->next_idx || piece.size == 0 || !utf8_is_valid(piece)) l->is_bad = true;
    text_buf_add_span(&l->arguments, piece);
}

static inline void al_end(void *user, size_t idx, bool complete)
{
    struct answer_log *const l = user;
    if (!l->in_call || idx != l->next_idx) l->is_bad = true;
    l->in_call = false;
    l->next_idx++;
    if (!complete) return;
    text_buf_add_str(&l->calls, " N");
    json_text_string(&l->calls, text_buf_span(&l->name));
    text_buf_add_str(&l->calls, " A");
    json_text_string(&l->calls, text_buf_span(&l->arguments));
}

static inline struct answer_events answer_log_events(struct answer_log *l)
{
    return (struct answer_events){l, al_reasoning, al_content, al_begin, al_arguments, al_end};
}

static inline void answer_log_write(const struct answer_log *l, enum answer_finish finish, struct text_buf *out)
{
    static const char *const names[] = {"stop", "length", "tool_calls"};
    text_buf_add_str(out, "R");
    json_text_string(out, text_buf_span(&l->reasoning));
    text_buf_add_str(out, " C");
    json_text_string(out, text_buf_span(&l->content));
    text_buf_add_span(out, text_buf_span(&l->calls));
    text_buf_add_char(out, ' ');
    text_buf_add_str(out, names[finish]);
}

#endif
