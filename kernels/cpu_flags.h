/* cpu_flags.h - what this CPU and this operating system really offer (CPUID and XGETBV, no compiler built-ins). */
#ifndef KERNELS_CPU_FLAGS_H
#define KERNELS_CPU_FLAGS_H

#include <stdint.h>

enum {
    KERN_AVX2 = 1u << 0,     /* AVX2, FMA, F16C, BMI2, and the OS saves ymm */
    KERN_AVX512 = 1u << 1,   /* F, BW, VL, DQ, VNNI, VBMI, GFNI, and the OS saves zmm (Ice Lake, Zen 4 and later) */
    KERN_AVX_VNNI = 1u << 2, /* 256-bit VNNI without AVX-512 */
};

uint32_t kern_cpu_flags(void);
/* Flags for --isa: "auto", "scalar", "avx2", "avx512". Returns -1 when the name is unknown, -2 when this CPU lacks it. */
int kern_isa_flags(const char *name, uint32_t *flags);

#endif
