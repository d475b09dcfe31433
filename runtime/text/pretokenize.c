/* pretokenize.c - the DeepSeek-V3/V4 pre-tokenizer as a hand-written scanner: no regex engine, no recursion.
 *
 * The definition is three patterns applied one after the other, each to what the one before left:
 *   1  \p{N}{1,3}
 *   2  [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+
 *   3  A [ASCII punctuation][A-Za-z]+        B [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+    C  ?[\p{P}\p{S}]+[\r\n]*
 *      D \s*[\r\n]+                          E \s+(?!\S)                               F \s+
 * Here: numbers are taken in threes; between them a sub-stretch is a maximal run inside, or outside, the ranges of pattern 2;
 * pattern 3 then sees the end of the sub-stretch as the end of its text. What nothing matches is a piece of its own. */
#include "runtime/text/pretokenize.h"

#include "runtime/text/unicode_classes.h"
#include "runtime/text/utf8.h"

struct point {
    uint32_t cp;
    enum unicode_class cls;
    size_t size; /* bytes */
};

static struct point point_at(const struct pretokenizer *p, size_t pos)
{
    struct point c;
    c.cp = utf8_read_valid(p->text.data + pos, &c.size);
    c.cls = unicode_class_of(c.cp);
    return c;
}

static bool is_newline(uint32_t cp)
{
    return cp == '\r' || cp == '\n';
}

static bool is_ascii_letter(uint8_t b)
{
    return (uint8_t)((b | 0x20) - 'a') < 26;
}

static bool is_ascii_punct(uint32_t cp)
{
    return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') || (cp >= '{' && cp <= '~');
}

static bool is_cjk(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

static bool is_word(enum unicode_class cls)
{
    return cls == UNICODE_LETTER || cls == UNICODE_MARK;
}

static bool is_sign(enum unicode_class cls)
{
    return cls == UNICODE_PUNCT || cls == UNICODE_SYMBOL;
}

/* End of the run of code points from pos on that are words (or signs); never beyond the sub-stretch. */
static size_t skip_class(const struct pretokenizer *p, size_t pos, bool (*in)(enum unicode_class))
{
    while (pos < p->sub_end) {
        const struct point c = point_at(p, pos);
        if (!in(c.cls)) break;
        pos += c.size;
    }
    return pos;
}

static bool word_at(const struct pretokenizer *p, size_t pos)
{
    return pos < p->sub_end && is_word(point_at(p, pos).cls);
}

/* Patterns D, E, F at a white space; returns the end of the piece. */
static size_t space_piece(const struct pretokenizer *p, size_t start)
{
    size_t pos = start, last_start = start, newline_end = start;
    while (pos < p->sub_end) {
        const struct point c = point_at(p, pos);
        if (c.cls != UNICODE_SPACE) break;
        last_start = pos;
        pos += c.size;
        if (is_newline(c.cp)) newline_end = pos;
    }
    if (newline_end > start) return newline_end;                   /* D: through the last newline of the run */
    if (pos < p->sub_end && last_start > start) return last_start; /* E: leaves one for what follows */
    return pos;                                                    /* F, or E at the end */
}

/* Pattern 3 at the start of a piece; returns the piece's end. */
static size_t piece_end(const struct pretokenizer *p)
{
    const uint8_t *const s = p->text.data;
    const struct point c = point_at(p, p->pos);
    const size_t next = p->pos + c.size;
    if (is_ascii_punct(c.cp) && next < p->sub_end && is_ascii_letter(s[next])) { /* A */
        size_t pos = next;
        while (pos < p->sub_end && is_ascii_letter(s[pos])) pos++;
        return pos;
    }
    if (is_word(c.cls)) return skip_class(p, next, is_word);                                           /* B */
    if (!is_newline(c.cp) && !is_sign(c.cls) && word_at(p, next)) return skip_class(p, next, is_word); /* B, one led in */
    const size_t sign = c.cp == ' ' ? next : p->pos;
    size_t pos = skip_class(p, sign, is_sign);
    if (pos > sign) { /* C */
        while (pos < p->sub_end && is_newline(s[pos])) pos++;
        return pos;
    }
    if (c.cls == UNICODE_SPACE) return space_piece(p, p->pos);
    pos = next; /* no pattern matches here: up to the next place where one does */
    while (pos < p->sub_end) {
        const struct point d = point_at(p, pos);
        if (d.cls != UNICODE_OTHER || word_at(p, pos + d.size)) break;
        pos += d.size;
    }
    return pos;
}

/* Pattern 1: up to three numbers. */
static size_t number_end(const struct pretokenizer *p)
{
    size_t pos = p->pos;
    for (int i = 0; i < 3 && pos < p->text.size; i++) {
        const struct point c = point_at(p, pos);
        if (c.cls != UNICODE_NUMBER) break;
        pos += c.size;
    }
    return pos;
}

/* Pattern 2: the sub-stretch beginning at pos, which is no number. */
static size_t sub_stretch_end(const struct pretokenizer *p)
{
    size_t pos = p->pos;
    const bool cjk = is_cjk(point_at(p, pos).cp);
    while (pos < p->text.size) {
        const struct point c = point_at(p, pos);
        if (c.cls == UNICODE_NUMBER || is_cjk(c.cp) != cjk) break;
        pos += c.size;
    }
    return pos;
}

void pretokenize_begin(struct pretokenizer *p, struct mc_span text)
{
    *p = (struct pretokenizer){text, 0, 0};
}

bool pretokenize_next(struct pretokenizer *p, struct mc_span *piece)
{
    if (p->pos == p->text.size) return false;
    const size_t start = p->pos;
    size_t end;
    if (p->pos == p->sub_end) {
        end = number_end(p);
        p->sub_end = end > start ? end : sub_stretch_end(p);
    } else {
        end = start;
    }
    if (end == start) end = piece_end(p);
    p->pos = end;
    *piece = (struct mc_span){p->text.data + start, end - start};
    return true;
}
