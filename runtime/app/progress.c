/* progress.c - see progress.h. */
#include "runtime/app/progress.h"

#include "platform/os.h"

#include <stdio.h>

static const uint64_t first_ns = 500000000, bar_ns = 200000000, line_ns = 5000000000u;

void progress_begin(struct progress *p, const char *what, const char *unit, double scale, bool quiet)
{
    *p = (struct progress){.what = what, .unit = unit, .scale = scale, .start_ns = os_clock_ns(), .enabled = !quiet};
    p->terminal = os_stderr_is_terminal();
    p->shown_ns = p->start_ns;
}

void progress_update(struct progress *p, uint64_t done, uint64_t total)
{
    if (!p->enabled) return;
    const uint64_t now = os_clock_ns();
    const uint64_t wait = !p->terminal ? line_ns : p->drawn ? bar_ns : first_ns;
    if (now - p->shown_ns < wait) return;
    p->shown_ns = now;
    const double seconds = (double)(now - p->start_ns) * 1e-9;
    const double rate = (double)done / seconds, share = (double)done / (double)total;
    const double left = done ? (double)(total - done) / rate : 0;
    char bar[25];
    for (int i = 0; i < 24; i++) bar[i] = i < (int)(share * 24) ? '#' : '.';
    bar[24] = '\0';
    fprintf(stderr,
            p->terminal ? "\r%s [%s] %3.0f%%  %.1f of %.1f %s, %.1f/s, %.0f s left\033[K"
                        : "%s: %.0s%.0f%%, %.1f of %.1f %s, %.1f/s, %.0f s left\n",
            p->what, bar, share * 100, (double)done / p->scale, (double)total / p->scale, p->unit, rate / p->scale, left);
    fflush(stderr);
    p->drawn = true;
}

void progress_end(struct progress *p)
{
    if (p->enabled && p->terminal && p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
