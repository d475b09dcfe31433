/* hash.c - see hash.h. The only file that sees xxhash.h: header-only, so there is no library to link. */
#include "platform/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mc_hash64(const void *data, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size, seed);
}
