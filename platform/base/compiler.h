/* compiler.h - the few attributes we use, under one name each. Nothing else may test for a compiler. */
#ifndef PLATFORM_BASE_COMPILER_H
#define PLATFORM_BASE_COMPILER_H

#include <stddef.h>

#define MC_MUST_CHECK __attribute__((warn_unused_result))
#define MC_INLINE     static inline __attribute__((always_inline))
#define MC_NOINLINE   __attribute__((noinline))
#define MC_UNUSED     __attribute__((unused))
#define MC_ALIGNED(n) __attribute__((aligned(n)))

/* Make the optimiser forget what it knows about a vector variable or a pointer (no instruction). */
#define MC_OPAQUE_VECTOR(v)  __asm__("" : "+x"(v))
#define MC_OPAQUE_POINTER(p) __asm__("" : "+r"(p))

/* mingw's printf family is the C99 one under -std=c17, which GCC calls gnu_printf. */
#if defined(__MINGW32__)
#define MC_PRINTF(fmt, first) __attribute__((format(gnu_printf, fmt, first)))
#else
#define MC_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#endif

/* Before a loop of constant count whose body must stay in registers: unrolled completely. */
#if defined(__clang__)
#define MC_UNROLL _Pragma("unroll")
#else
#define MC_UNROLL _Pragma("GCC unroll 64")
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
