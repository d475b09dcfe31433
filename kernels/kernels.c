/* kernels.c - the ladder that fills the kernel table. See kernels.h. */
#include "kernels/kernels.h"

#include "kernels/cpu_flags.h"
#include "kernels/kernels_isa.h"

#include <string.h>

void kern_init_ref(struct kern_table *t)
{
    memset(t, 0, sizeof *t);
    t->isa = "scalar";
    kern_init_ref_matmul(t);
    kern_init_ref_float(t);
    kern_init_ref_pack(t);
}

void kern_table_init(struct kern_table *t, uint32_t cpu_flags)
{
    kern_init_ref(t);
#if defined(MC_HAVE_avx2)
    if (!(cpu_flags & KERN_AVX2)) return;
    t->isa = "avx2";
    kern_init_avx2(t, cpu_flags);
#endif
#if defined(MC_HAVE_avx512)
    if (!(cpu_flags & KERN_AVX512)) return;
    t->isa = "avx512";
    kern_init_avx512(t, cpu_flags);
#endif
    (void)cpu_flags;
}

void kern_matmul_exact(const struct kern_table *t, enum quant_type type, float *const *y, const void *w, size_t w_stride,
                       const float *const *x, size_t k, size_t rows, size_t cols, float *scratch)
{
    for (size_t r = 0; r < rows; r++) {
        const char *row = (const char *)w + r * w_stride;
        t->dequantize[type](scratch, row, k);
        for (size_t c = 0; c < cols; c++) {
            float *out = y[c] + r;
            const void *col = x[c];
            t->matmul[QUANT_F32](&out, scratch, k * sizeof(float), &col, k, 1, 1);
        }
    }
}
