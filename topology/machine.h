/* machine.h - a machine as placement sees it: a list of the logical CPUs this process may use, each with what it shares.
 *
 * Filled by discover, or by a test. A plain value: copy it, compare it, throw it away. */
#ifndef TOPOLOGY_MACHINE_H
#define TOPOLOGY_MACHINE_H

#include "platform/os.h"

enum { MACHINE_CPUS_MAX = 1024 };

struct machine {
    unsigned n;                              /* >= 1 */
    struct os_cpu_row cpu[MACHINE_CPUS_MAX]; /* ascending by OS number, allowed CPUs only */
};

#endif
