/* json_out.c - see json_out.h. */
#include "runtime/app/json_out.h"

#include "runtime/app/output.h"

#include <stdio.h>

enum mc_code json_out_finish(struct json_out *j, struct mc_err *err)
{
    const bool whole = !j->failed;
    if (whole) {
        fwrite(j->text, 1, j->size, stdout);
        putchar('\n');
    }
    json_out_deinit(j);
    return whole ? output_flush(err) : mc_fail(err, MC_ENOMEM, 0, "no memory for the JSON output");
}
