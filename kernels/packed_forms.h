/* packed_forms.h - packed formats as constants (kernels/pack.h): what the kernels of all instruction sets have in common. With
 * a constant type everything here is folded. */
#ifndef KERNELS_PACKED_FORMS_H
#define KERNELS_PACKED_FORMS_H

#include "kernels/pack.h"
#include "platform/base/compiler.h"

/* ---- formats that are multiplied with q8_0 rows: a float step for each 32 columns or fewer ---- */

struct step_form {
    unsigned step;     /* columns */
    int bias;          /* of the codes as they are multiplied */
    bool minimum;      /* + m * s */
    size_t code_bytes; /* lines of 32 columns */
};

MC_INLINE struct step_form step_form_of(enum quant_type type)
{
    switch (type) {
    case QUANT_Q8_0:
        return (struct step_form){32, 128, false, 512};
    case QUANT_IQ4_NL:
        return (struct step_form){32, 128, false, 256};
    case QUANT_Q4_0:
        return (struct step_form){32, 8, false, 256};
    case QUANT_Q5_0:
        return (struct step_form){32, 16, false, 320};
    case QUANT_MXFP4:
        return (struct step_form){32, 12, false, 256};
    case QUANT_NVFP4:
        return (struct step_form){16, 12, false, 256};
    case QUANT_Q2_0:
        return (struct step_form){32, 1, false, 128};
    case QUANT_Q1_0:
        return (struct step_form){32, 1, false, 64};
    case QUANT_Q5_1:
        return (struct step_form){32, 0, true, 320};
    default:
        return (struct step_form){32, 0, true, 256}; /* q4_1 */
    }
}

/* Where in the head the scales of step s are. */
MC_INLINE size_t step_scale_at(enum quant_type type, size_t s)
{
    switch (type) {
    case QUANT_MXFP4:
    case QUANT_NVFP4:
        return 16 * s;
    case QUANT_Q4_1:
    case QUANT_Q5_1:
        return 64 * s;
    case QUANT_Q2_0:
        return 32 * (s / 2);
    case QUANT_Q1_0:
        return 32 * (s / 4);
    default:
        return 32 * s;
    }
}

/* ---- formats that are multiplied with q8_K rows: integer scales inside blocks of 256 columns, one float step a block ---- */

enum pairs { NO_PAIRS, BYTES, SIGNED_BYTES, NIBBLES, ODD_NIBBLES /* 2 * nibble + 1 */, TERNARY /* the same of three bits */ };

struct form {
    unsigned sub; /* columns under one scale */
    enum pairs scales;
    enum pairs minima;
    int bias;          /* of the codes as they are multiplied, undone with the sums of the activation */
    size_t code_bytes; /* lines of 32 columns */
    float factor;      /* of d */
};

MC_INLINE struct form form_of(enum quant_type type)
{
    switch (type) {
    case QUANT_Q2_K:
        return (struct form){16, NIBBLES, NIBBLES, 0, 128, 1};
    case QUANT_Q3_K:
        return (struct form){16, SIGNED_BYTES, NO_PAIRS, 4, 192, 1};
    case QUANT_Q4_K:
        return (struct form){32, BYTES, BYTES, 0, 256, 1};
    case QUANT_Q5_K:
        return (struct form){32, BYTES, BYTES, 0, 320, 1};
    case QUANT_Q6_K:
        return (struct form){16, SIGNED_BYTES, NO_PAIRS, 32, 384, 1};
    case QUANT_IQ2_XXS:
        return (struct form){32, ODD_NIBBLES, NO_PAIRS, 43, 192, 0.125f};
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
        return (struct form){16, ODD_NIBBLES, NO_PAIRS, 43, 192, 0.125f};
    case QUANT_IQ3_XXS:
        return (struct form){32, ODD_NIBBLES, NO_PAIRS, 62, 256, 0.25f};
    case QUANT_IQ3_S:
        return (struct form){32, ODD_NIBBLES, NO_PAIRS, 15, 256, 1};
    case QUANT_IQ4_XS:
        return (struct form){32, SIGNED_BYTES, NO_PAIRS, 128, 256, 1};
    case QUANT_IQ1_S: /* codes are value + 1; with the shifts of iq1, which are eighths, the kernels undo that too */
        return (struct form){32, TERNARY, NO_PAIRS, 0, 128, 0.125f};
    case QUANT_IQ1_M:
        return (struct form){16, ODD_NIBBLES, NO_PAIRS, 0, 128, 0.125f};
    default:
        return (struct form){256, NO_PAIRS, NO_PAIRS, 1, 128, 1}; /* tq1_0, tq2_0 */
    }
}

/* iq2: 43 +- magnitude; iq3_xxs: 62 +- magnitude, for a lookup of 16 bytes. */
#define PACKED_IQ2_CODES     51, 68, 86, 0, 35, 18, 0, 0, 51, 68, 86, 0, 35, 18, 0, 0
#define PACKED_IQ3_XXS_CODES 66, 74, 82, 90, 98, 106, 114, 124, 58, 50, 42, 34, 26, 18, 10, 0

/* Bytes of scales, minima and shifts in a body. */
MC_INLINE size_t pair_bytes(enum pairs form, unsigned sub)
{
    return form == NO_PAIRS ? 0 : 256 / sub * (form <= SIGNED_BYTES ? 16 : 8);
}
MC_INLINE size_t minima_at(struct form f)
{
    return pair_bytes(f.scales, f.sub);
}
MC_INLINE size_t codes_at(enum quant_type type)
{
    const struct form f = form_of(type);
    return minima_at(f) + pair_bytes(f.minima, f.sub) + (type == QUANT_IQ1_M ? 64 : 0);
}
MC_INLINE size_t body_bytes(enum quant_type type)
{
    return codes_at(type) + 8 * form_of(type).code_bytes;
}
MC_INLINE size_t head_bytes(struct form f)
{
    return f.minima == NO_PAIRS ? 32 : 64; /* a block */
}

#endif
