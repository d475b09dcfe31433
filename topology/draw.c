/* draw.c - see draw.h
 *
 * One walk over the cores in the order package, node, group, number serves both forms. A core is a cell of three lines: its
 * name, its CPUs (the allowed ones), its workers.
 *
 *   text   frames of one width: what stands in a group sets it     svg   boxes in boxes, CELLS_MAX cores to a line
 */
#include "topology/draw.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS_MAX = 8, CELL_LINES = 3, CELL_TEXT = 40, LEVELS = 3 /* package, node, group */, LINE_WIDTH = 104 };
enum { BOX_W = 92, BOX_H = 56, GAP = 8, TITLE_H = 20, LINE_H = 16 }; /* of the SVG, in its units */

struct sink {
    char *text;
    size_t n, cap;
    bool failed;
};

struct cell {
    unsigned id[LEVELS], core; /* package, node, group */
    unsigned l3;
    uint64_t l3_bytes;
    bool works;
    char line[CELL_LINES][CELL_TEXT];
};

struct picture {
    const struct machine *m;
    const struct placement *p;
    struct cell *cell; /* in the order of the walk */
    unsigned n;
    struct sink out;
    unsigned cell_width, columns; /* text: characters of a cell, cells to a line */
};

static MC_PRINTF(2, 3) void add(struct sink *s, const char *format, ...)
{
    va_list args;
    if (s->failed) return;
    if (s->cap - s->n < 512) {
        char *const more = realloc(s->text, 2 * s->cap + 4096);
        if (!more) {
            s->failed = true;
            return;
        }
        s->text = more;
        s->cap = 2 * s->cap + 4096;
    }
    va_start(args, format);
    const int n = vsnprintf(s->text + s->n, s->cap - s->n, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= s->cap - s->n)
        s->failed = true;
    else
        s->n += (size_t)n;
}

static void repeat(struct sink *s, char c, unsigned n)
{
    for (unsigned i = 0; i < n; i++) add(s, "%c", c);
}

void draw_size(char buf[24], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit + 1 < ARRAY_LEN(units); unit++) value /= 1024;
    snprintf(buf, 24, "%.4g %s", value, units[unit]);
}

/* ---- cells ---- */

static int compare(unsigned a, unsigned b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    for (unsigned level = 0; level < LEVELS; level++)
        if (x->id[level] != y->id[level]) return compare(x->id[level], y->id[level]);
    return compare(x->core, y->core);
}

/* Appends to a line of a cell; what does not fit is left out, with dots. */
static void append(char *line, const char *text)
{
    const size_t n = strlen(line), size = strlen(text);
    if (n + size + 4 < CELL_TEXT)
        memcpy(line + n, text, size + 1);
    else if (n < 3 || line[n - 1] != '.')
        memcpy(line + n, "...", 4);
}

static void append_cpu(struct cell *c, const struct picture *d, unsigned cpu)
{
    char text[24];
    snprintf(text, sizeof text, "%s%u", c->line[1][0] ? "," : "cpu ", cpu);
    append(c->line[1], text);
    for (unsigned i = 0; i < d->p->n && d->p->pinned; i++) {
        if (d->p->cpu[i] != cpu) continue;
        snprintf(text, sizeof text, "%sw%u", c->works ? " " : "", i);
        append(c->line[2], text);
        c->works = true;
    }
}

static bool has_kinds(const struct machine *m)
{
    for (unsigned i = 1; i < m->n; i++)
        if (m->cpu[i].efficiency != m->cpu[0].efficiency) return true;
    return false;
}

static void make_cells(struct picture *d)
{
    const struct machine *const m = d->m;
    const bool kinds = has_kinds(m);
    for (unsigned i = 0; i < m->n; i++) {
        const struct os_cpu_row *const row = &m->cpu[i];
        if (m->sibling[i]) continue;
        struct cell *const c = &d->cell[d->n++];
        *c = (struct cell){{row->package, row->node, m->group[i]}, row->core, row->l3, row->l3_bytes, false, {{0}}};
        if (row->core == OS_CPU_NONE)
            append(c->line[0], "core");
        else
            snprintf(c->line[0], CELL_TEXT, "core %u", row->core);
        if (kinds) {
            char text[24];
            snprintf(text, sizeof text, " kind %u", row->efficiency);
            append(c->line[0], text);
        }
        for (unsigned k = i; k < m->n; k++)
            if (k == i || (row->core != OS_CPU_NONE && m->cpu[k].core == row->core)) append_cpu(c, d, m->cpu[k].cpu);
        if (!c->works) append(c->line[2], "-");
    }
    qsort(d->cell, d->n, sizeof *d->cell, by_place);
}

/* Levels from the outermost down to which cells a and b stand in the same boxes. */
static unsigned shared_levels(const struct cell *a, const struct cell *b)
{
    unsigned level = 0;
    while (level < LEVELS && a->id[level] == b->id[level]) level++;
    return level;
}

/* Cells from `first` on that stand in the same group. */
static unsigned group_size(const struct picture *d, unsigned first)
{
    unsigned n = 1;
    while (first + n < d->n && shared_levels(&d->cell[first], &d->cell[first + n]) == LEVELS) n++;
    return n;
}

static void title(char buf[64], const struct picture *d, unsigned first, unsigned level)
{
    static const char *const names[] = {"package", "NUMA node"};
    const struct cell *const c = &d->cell[first];
    char size[24];
    if (level < 2 && c->id[level] == OS_CPU_NONE) {
        snprintf(buf, 64, "%s not known", names[level]);
    } else if (level < 2) {
        snprintf(buf, 64, "%s %u", names[level], c->id[level]);
    } else if (c->l3 == OS_CPU_NONE) {
        snprintf(buf, 64, "no shared L3");
    } else {
        draw_size(size, c->l3_bytes);
        snprintf(buf, 64, c->l3_bytes ? "L3 %u, %s" : "L3 %u", c->l3, size);
    }
}

static void headline(char buf[160], const struct machine *m, const struct placement *p)
{
    snprintf(buf, 160, "NUMA nodes %u, L3 groups %u, cores %u, CPUs %u; workers %u%s",
             machine_count(m, offsetof(struct os_cpu_row, node)), machine_count(m, offsetof(struct os_cpu_row, l3)),
             machine_count(m, offsetof(struct os_cpu_row, core)), m->n, p->n, p->pinned ? "" : ", not pinned");
}

/* ---- text ---- */

static void edge(struct picture *d, unsigned level, const char *text)
{
    const unsigned inner = d->columns * (d->cell_width + 1) + 1, dashes = inner + 4 * (LEVELS - level) - 2;
    for (unsigned i = 0; i < level; i++) add(&d->out, "| ");
    const unsigned n = (unsigned)strlen(text);
    add(&d->out, n ? "+- %s " : "+", text);
    repeat(&d->out, '-', n == 0 ? dashes : n + 3 < dashes ? dashes - n - 3 : 0);
    add(&d->out, "+");
    for (unsigned i = 0; i < level; i++) add(&d->out, " |");
    add(&d->out, "\n");
}

/* One line of a row of cells; line CELL_LINES is the border. */
static void cell_line(struct picture *d, const struct cell *c, unsigned n, unsigned line)
{
    const unsigned width = d->columns * (d->cell_width + 1) + 1, used = n * (d->cell_width + 1) + 1;
    add(&d->out, "| | | ");
    for (unsigned i = 0; i < n; i++) {
        add(&d->out, line < CELL_LINES ? "|" : "+");
        if (line < CELL_LINES)
            add(&d->out, " %-*s", (int)d->cell_width - 1, c[i].line[line]);
        else
            repeat(&d->out, '-', d->cell_width);
    }
    add(&d->out, line < CELL_LINES ? "|" : "+");
    repeat(&d->out, ' ', width - used);
    add(&d->out, " | | |\n");
}

static void group_text(struct picture *d, unsigned first, unsigned n)
{
    for (unsigned i = 0; i < n; i += d->columns) {
        const unsigned some = n - i < d->columns ? n - i : d->columns;
        if (i == 0) cell_line(d, &d->cell[first], some, CELL_LINES);
        for (unsigned line = 0; line <= CELL_LINES; line++) cell_line(d, &d->cell[first + i], some, line);
    }
}

static void measure_text(struct picture *d)
{
    d->columns = 1;
    d->cell_width = 0;
    for (unsigned i = 0; i < d->n; i++)
        for (unsigned line = 0; line < CELL_LINES; line++) {
            const unsigned n = (unsigned)strlen(d->cell[i].line[line]) + 2;
            if (n > d->cell_width) d->cell_width = n;
        }
    const unsigned fit = LINE_WIDTH / (d->cell_width + 1), most = fit < CELLS_MAX ? fit : CELLS_MAX;
    if (d->cell_width < 16) d->columns = 2; /* room for the titles */
    for (unsigned first = 0, n; first < d->n; first += n) {
        n = group_size(d, first);
        if (n > d->columns) d->columns = n < most ? n : most;
    }
}

static void draw_text(struct picture *d)
{
    char text[160];
    measure_text(d);
    headline(text, d->m, d->p);
    add(&d->out, "%s\n", text);
    for (unsigned first = 0, n; first < d->n; first += n) {
        const unsigned same = first ? shared_levels(&d->cell[first - 1], &d->cell[first]) : 0;
        n = group_size(d, first);
        for (unsigned level = same; level < LEVELS; level++) {
            title(text, d, first, level);
            edge(d, level, text);
        }
        group_text(d, first, n);
        const unsigned stays = first + n < d->n ? shared_levels(&d->cell[first], &d->cell[first + n]) : 0;
        for (unsigned level = LEVELS; level-- > stays;) edge(d, level, "");
    }
}

/* ---- SVG ---- */

static void box(struct picture *d, unsigned x, unsigned y, unsigned w, unsigned h, const char *fill, const char *text)
{
    add(&d->out, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"4\" fill=\"%s\" stroke=\"#555\"/>\n", x, y, w, h,
        fill);
    if (text[0]) add(&d->out, "<text x=\"%u\" y=\"%u\">%s</text>\n", x + GAP, y + TITLE_H - 6, text);
}

static unsigned group_height(unsigned n)
{
    return TITLE_H + (n + CELLS_MAX - 1) / CELLS_MAX * (BOX_H + GAP) + GAP;
}

/* Height of the box of `level` that begins with cell `first`. */
static unsigned box_height(const struct picture *d, unsigned first, unsigned level)
{
    unsigned h = TITLE_H + GAP, i = first;
    if (level == LEVELS - 1) return group_height(group_size(d, first));
    while (i < d->n && shared_levels(&d->cell[first], &d->cell[i]) > level) {
        h += box_height(d, i, level + 1) + GAP;
        const unsigned inside = i;
        while (i < d->n && shared_levels(&d->cell[inside], &d->cell[i]) > level + 1) i++;
    }
    return h;
}

static void group_svg(struct picture *d, unsigned first, unsigned n, unsigned x, unsigned y)
{
    for (unsigned i = 0; i < n; i++) {
        const struct cell *const c = &d->cell[first + i];
        const unsigned cx = x + GAP + i % CELLS_MAX * (BOX_W + GAP), cy = y + TITLE_H + GAP + i / CELLS_MAX * (BOX_H + GAP);
        box(d, cx, cy, BOX_W, BOX_H, c->works ? "#bfe3bf" : "#eee", "");
        for (unsigned line = 0; line < CELL_LINES; line++)
            add(&d->out, "<text x=\"%u\" y=\"%u\">%s</text>\n", cx + 6, cy + (line + 1) * LINE_H, c->line[line]);
    }
}

static void draw_svg(struct picture *d)
{
    static const char *const fills[LEVELS] = {"#fff", "#f4f7fb", "#e3ecf7"};
    const unsigned inner = CELLS_MAX * (BOX_W + GAP) + GAP, width = inner + 2 * LEVELS * GAP;
    unsigned height = TITLE_H + 2 * GAP;
    for (unsigned i = 0; i < d->n; i++)
        if (i == 0 || shared_levels(&d->cell[i - 1], &d->cell[i]) == 0) height += box_height(d, i, 0) + GAP;
    add(&d->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n",
        width, height);
    char text[160];
    headline(text, d->m, d->p);
    add(&d->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", GAP, TITLE_H - 4, text);
    unsigned y = TITLE_H + GAP;
    for (unsigned first = 0, n; first < d->n; first += n) {
        const unsigned same = first ? shared_levels(&d->cell[first - 1], &d->cell[first]) : 0;
        n = group_size(d, first);
        for (unsigned level = same; level < LEVELS; level++) {
            title(text, d, first, level);
            box(d, GAP * (level + 1), y, width - 2 * GAP * (level + 1), box_height(d, first, level), fills[level], text);
            y += level + 1 < LEVELS ? TITLE_H + GAP : 0;
        }
        group_svg(d, first, n, GAP * LEVELS, y);
        y += group_height(n) + GAP;
        const unsigned stays = first + n < d->n ? shared_levels(&d->cell[first], &d->cell[first + n]) : 0;
        for (unsigned level = LEVELS - 1; level-- > stays;) y += GAP;
    }
    add(&d->out, "</svg>\n");
}

enum mc_code draw_picture(const struct machine *m, const struct placement *p, enum draw_form form, char **out, size_t *size,
                          struct mc_err *err)
{
    struct picture d = {.m = m, .p = p, .cell = calloc(m->n, sizeof *d.cell)};
    if (d.cell) {
        make_cells(&d);
        if (form == DRAW_TEXT)
            draw_text(&d);
        else
            draw_svg(&d);
    }
    const bool failed = !d.cell || d.out.failed;
    free(d.cell);
    if (failed) {
        free(d.out.text);
        return mc_fail(err, MC_ENOMEM, 0, "no memory for the picture of the machine");
    }
    *out = d.out.text;
    *size = d.out.n;
    return MC_OK;
}
