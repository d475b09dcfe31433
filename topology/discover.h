/* discover.h - finds out what machine this is. */
#ifndef TOPOLOGY_DISCOVER_H
#define TOPOLOGY_DISCOVER_H

#include "topology/machine.h"

/* The CPUs that this process may use, of this machine, and its CPU quota. Never fails: where the system tells nothing, every
 * allowed CPU counts as a core of its own (logged). To be called by a thread that is not bound. */
void discover_this_machine(struct machine *out);

/* A described machine: the path of an hwloc XML file, or an hwloc synthetic string such as "Package:1 L3:2 Core:8 PU:2". All
 * its allowed CPUs; nothing of this machine (affinity, cpusets, quotas) counts. Errors: MC_EARG (it cannot be read);
 * MC_EUNSUPPORTED in builds without hwloc. */
MC_MUST_CHECK enum mc_code discover_described(const char *description, struct machine *out, struct mc_err *err);

#endif
