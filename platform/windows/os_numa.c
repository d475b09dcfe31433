/* os_numa.c - memory nodes on Windows: one, as far as this program cares.
 *
 * The system places a page on the node of the thread that touches it first, which is what --numa local asks for, and offers no
 * policy for memory that exists (VirtualAllocExNuma decides at allocation). */
#include "platform/os.h"

unsigned os_numa_nodes(unsigned *nodes, unsigned cap)
{
    if (!cap) return 0;
    nodes[0] = 0;
    return 1;
}

unsigned os_numa_node_here(void)
{
    return OS_CPU_NONE;
}

uint64_t os_numa_free_bytes(unsigned node)
{
    (void)node;
    return 0;
}

bool os_numa_prefer(void *p, size_t size, unsigned node)
{
    (void)p, (void)size, (void)node;
    return false;
}

bool os_numa_interleave(void *p, size_t size)
{
    (void)p, (void)size;
    return false;
}

double os_numa_share(const void *p, size_t size, unsigned node)
{
    (void)p, (void)size, (void)node;
    return 0;
}
