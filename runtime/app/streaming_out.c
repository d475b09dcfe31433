/* streaming_out.c - see streaming_out.h. */
#include "runtime/app/streaming_out.h"

#include <math.h>

static struct engine_streaming combine(const struct engine_streaming *a, const struct engine_streaming *b, bool minus)
{
    const uint64_t s = minus ? UINT64_MAX : 1; /* modulo 2^64 */
    return (struct engine_streaming){a->hits + s * b->hits,
                                     a->misses + s * b->misses,
                                     a->bytes_read + s * b->bytes_read,
                                     a->busy_ns + s * b->busy_ns,
                                     a->stall_ns + s * b->stall_ns,
                                     a->guesses + s * b->guesses,
                                     a->guesses_used + s * b->guesses_used,
                                     a->retries + s * b->retries,
                                     a->foreseen + s * b->foreseen,
                                     a->foreseen_right + s * b->foreseen_right};
}

struct engine_streaming streaming_since(const struct engine_streaming *now, const struct engine_streaming *before)
{
    return combine(now, before, true);
}

struct engine_streaming streaming_sum(const struct engine_streaming *a, const struct engine_streaming *b)
{
    return combine(a, b, false);
}

double streaming_gb_s(const struct engine_streaming *n)
{
    return n->busy_ns ? (double)n->bytes_read / (double)n->busy_ns : (double)NAN;
}

double streaming_hit_rate(const struct engine_streaming *n)
{
    return n->hits + n->misses ? (double)n->hits / (double)(n->hits + n->misses) : (double)NAN;
}

void streaming_json(struct json_out *j, const struct engine_streaming *n)
{
    json_out_uint(j, "hits", n->hits);
    json_out_uint(j, "misses", n->misses);
    json_out_num(j, "hit_rate", streaming_hit_rate(n));
    json_out_uint(j, "bytes_read", n->bytes_read);
    json_out_num(j, "disk_gb_s", streaming_gb_s(n));
    json_out_num(j, "busy_s", (double)n->busy_ns * 1e-9);
    json_out_num(j, "stall_s", (double)n->stall_ns * 1e-9);
    json_out_uint(j, "guesses", n->guesses);
    json_out_uint(j, "guesses_used", n->guesses_used);
    json_out_num(j, "guess_recall", n->foreseen ? (double)n->foreseen_right / (double)n->foreseen : (double)NAN);
    json_out_uint(j, "retries", n->retries);
}
