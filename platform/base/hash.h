/* hash.h - one 64-bit hash for look-up tables and checksums (XXH3; fast on short names and on long runs alike).
 * The value is the same on every machine and may be stored in files. It guards against accidents, not against forgers: a
 * table fed from outside must bound what a flood of colliding names can cost. */
#ifndef PLATFORM_BASE_HASH_H
#define PLATFORM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* data may be NULL when size is 0. Threads: pure function. */
uint64_t mc_hash64(const void *data, size_t size, uint64_t seed);

#endif
