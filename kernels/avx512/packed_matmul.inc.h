/* packed_matmul.inc.h - the product of packed rows, for each family of formats that includes this: PACKED_ACT is the form of
 * its activations, direct and many_columns are its own. */
#ifndef KERNELS_AVX512_PACKED_MATMUL_INC_H
#define KERNELS_AVX512_PACKED_MATMUL_INC_H

MC_INLINE void few_columns(enum quant_type type, const struct job *j, size_t n_groups, size_t cols)
{
    size_t g = 0;
    switch (cols) {
    case 1:
        for (; g + 4 <= n_groups; g += 4) direct(type, 4, 1, j, g);
        for (; g < n_groups; g++) direct(type, 1, 1, j, g);
        break;
    case 2:
        for (; g + 2 <= n_groups; g += 2) direct(type, 2, 2, j, g);
        for (; g < n_groups; g++) direct(type, 1, 2, j, g);
        break;
    case 3:
        for (; g < n_groups; g++) direct(type, 1, 3, j, g);
        break;
    default:
        for (; g < n_groups; g++) direct(type, 1, 4, j, g);
        break;
    }
}

MC_INLINE void packed_matmul(enum quant_type type, float *const *y, const void *w, const void *const *x, size_t k, size_t rows,
                             size_t cols)
{
    for (size_t c0 = 0; c0 < cols; c0 += PACKED_COLS) {
        const size_t n = cols - c0 < PACKED_COLS ? cols - c0 : PACKED_COLS;
        const struct job j = {
            y + c0, w, x + c0, k, kern_pack_head_bytes(type, k), kern_pack_group_bytes(type, k), row_offsets_of(PACKED_ACT, k)};
        if (n <= PACKED_DIRECT_COLS)
            few_columns(type, &j, rows / 16, n);
        else
            many_columns(type, &j, rows / 16, n);
    }
}

#define PACKED_MATMUL(name, NAME)                                                                                              \
    static void packed_##name(float *const *y, const void *w, const void *const *x, size_t k, size_t rows, size_t cols)        \
    {                                                                                                                          \
        packed_matmul(QUANT_##NAME, y, w, x, k, rows, cols);                                                                   \
    }
#define PACKED_SET(name, NAME) t->packed[QUANT_##NAME] = packed_##name;

#endif
