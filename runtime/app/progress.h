/* progress.h - how far a long piece of work is: a bar when stderr is a terminal, a line every few seconds when it is not. */
#ifndef RUNTIME_APP_PROGRESS_H
#define RUNTIME_APP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what, *unit; /* "prompt", "tokens" */
    double scale;            /* shown = done / scale */
    uint64_t start_ns, shown_ns;
    bool enabled, terminal, drawn;
};

/* Nothing is shown in the first half second: short work stays quiet. what and unit are borrowed. */
void progress_begin(struct progress *p, const char *what, const char *unit, double scale, bool quiet);
void progress_update(struct progress *p, uint64_t done, uint64_t total); /* total >= 1 */
/* Clears the bar; what follows on stderr starts on a fresh line. May be called more than once. */
void progress_end(struct progress *p);

#endif
