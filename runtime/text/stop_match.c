/* stop_match.c - see stop_match.h
 *
 * One Knuth-Morris-Pratt automaton a string: `state` is how many of its bytes are the end of the text so far. */
#include "runtime/text/stop_match.h"

#include <stdlib.h>

struct stop_string {
    uint8_t *text;
    uint16_t *back; /* back[i]: longest proper border of the first i bytes */
    size_t size, state;
};

struct stop_match {
    struct text_buf held; /* the last max(state) bytes of the text */
    struct mc_span found;
    size_t n;
    struct stop_string strings[];
};

static bool init_string(struct stop_string *s, struct mc_span text)
{
    s->text = malloc(text.size);
    s->back = malloc((text.size + 1) * sizeof *s->back);
    if (!s->text || !s->back) return false;
    memcpy(s->text, text.data, text.size);
    s->size = text.size;
    s->back[0] = s->back[1] = 0;
    for (size_t i = 1, k = 0; i < text.size; i++) {
        while (k > 0 && s->text[i] != s->text[k]) k = s->back[k];
        if (s->text[i] == s->text[k]) k++;
        s->back[i + 1] = (uint16_t)k;
    }
    return true;
}

enum mc_code stop_match_create(const struct mc_span *stops, size_t n, struct stop_match **out, struct mc_err *err)
{
    *out = NULL;
    if (n == 0) return MC_OK;
    struct stop_match *const m = calloc(1, sizeof *m + n * sizeof m->strings[0]);
    if (!m) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu stop strings", n);
    m->n = n;
    for (size_t i = 0; i < n; i++)
        if (!init_string(&m->strings[i], stops[i])) {
            stop_match_destroy(m);
            return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu stop strings", n);
        }
    *out = m;
    return MC_OK;
}

void stop_match_destroy(struct stop_match *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->strings[i].text);
        free(m->strings[i].back);
    }
    text_buf_deinit(&m->held);
    free(m);
}

/* Takes in one byte; the string that is complete with it, or NULL. */
static const struct stop_string *advance(struct stop_match *m, uint8_t byte)
{
    const struct stop_string *found = NULL;
    for (size_t i = 0; i < m->n; i++) {
        struct stop_string *const s = &m->strings[i];
        while (s->state > 0 && s->text[s->state] != byte) s->state = s->back[s->state];
        if (s->text[s->state] == byte) s->state++;
        if (s->state == s->size && (!found || s->size > found->size)) found = s;
    }
    return found;
}

bool stop_match_feed(struct stop_match *m, struct mc_span text, struct text_buf *out)
{
    if (!m) {
        text_buf_add_span(out, text);
        return false;
    }
    for (size_t i = 0; i < text.size; i++) {
        const struct stop_string *const s = advance(m, text.data[i]);
        text_buf_add_char(&m->held, (char)text.data[i]);
        if (!s) continue;
        m->found = text_span(s->text, s->size);
        if (m->held.size >= s->size) text_buf_add(out, m->held.data, m->held.size - s->size);
        out->failed |= m->held.failed;
        text_buf_clear(&m->held);
        return true;
    }
    size_t keep = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->strings[i].state > keep) keep = m->strings[i].state;
    out->failed |= m->held.failed;
    if (m->held.size > keep) {
        text_buf_add(out, m->held.data, m->held.size - keep);
        text_buf_drop(&m->held, m->held.size - keep);
    }
    return false;
}

void stop_match_flush(struct stop_match *m, struct text_buf *out)
{
    if (!m) return;
    text_buf_add_span(out, text_buf_span(&m->held));
    text_buf_clear(&m->held);
    for (size_t i = 0; i < m->n; i++) m->strings[i].state = 0;
}

struct mc_span stop_match_found(const struct stop_match *m)
{
    return m ? m->found : (struct mc_span){NULL, 0};
}
