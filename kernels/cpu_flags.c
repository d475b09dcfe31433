/* cpu_flags.c - CPUID says what the CPU could do, XGETBV what the system lets it do: registers it does not save are not ours.
 * See cpu_flags.h. */
#include "kernels/cpu_flags.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)

struct regs {
    uint32_t a, b, c, d;
};

static struct regs cpuid(uint32_t leaf, uint32_t sub)
{
    struct regs r;
    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
    return r;
}

/* Which register files the system saves; only legal where OSXSAVE is set. */
static uint32_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool all(uint32_t reg, uint32_t bits)
{
    return (reg & bits) == bits;
}

#define BIT(n) (1u << (n))

uint32_t kern_cpu_flags(void)
{
    enum { XMM_YMM = 0x06, ZMM = 0xE6 };
    if (cpuid(0, 0).a < 7) return 0;
    const struct regs l1 = cpuid(1, 0), l7 = cpuid(7, 0);
    const uint32_t fma = BIT(12), osxsave = BIT(27), avx = BIT(28), f16c = BIT(29), popcnt = BIT(23);
    if (!all(l1.c, fma | osxsave | avx | f16c | popcnt)) return 0;
    const uint32_t saved = xcr0();
    const uint32_t bmi1 = BIT(3), avx2 = BIT(5), bmi2 = BIT(8);
    if (!all(saved, XMM_YMM) || !all(l7.b, bmi1 | avx2 | bmi2)) return 0;

    uint32_t flags = KERN_AVX2;
    if (l7.a >= 1 && all(cpuid(7, 1).a, BIT(4))) flags |= KERN_AVX_VNNI;
    const uint32_t f = BIT(16), dq = BIT(17), bw = BIT(30), vl = BIT(31);
    const uint32_t vbmi = BIT(1), gfni = BIT(8), vnni = BIT(11);
    if (all(saved, ZMM) && all(l7.b, f | dq | bw | vl) && all(l7.c, vbmi | gfni | vnni)) flags |= KERN_AVX512;
    return flags;
}

#else

uint32_t kern_cpu_flags(void)
{
    return 0;
}

#endif

int kern_isa_flags(const char *name, uint32_t *flags)
{
    static const struct {
        const char *name;
        uint32_t needs, keeps;
    } sets[] = {
        {"auto", 0, UINT32_MAX},
        {"scalar", 0, 0},
        {"avx2", KERN_AVX2, KERN_AVX2 | KERN_AVX_VNNI},
        {"avx512", KERN_AVX2 | KERN_AVX512, UINT32_MAX},
    };
    const uint32_t have = kern_cpu_flags();
    for (unsigned i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (strcmp(sets[i].name, name)) continue;
        if ((have & sets[i].needs) != sets[i].needs) return -2;
        *flags = have & sets[i].keeps;
        return 0;
    }
    return -1;
}
