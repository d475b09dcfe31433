/* streaming_out.h - what reading experts while the model runs has cost: for people and as JSON. */
#ifndef RUNTIME_APP_STREAMING_OUT_H
#define RUNTIME_APP_STREAMING_OUT_H

#include "platform/base/json_out.h"
#include "runtime/engine/engine.h"

/* now - before */
struct engine_streaming streaming_since(const struct engine_streaming *now, const struct engine_streaming *before);
struct engine_streaming streaming_sum(const struct engine_streaming *a, const struct engine_streaming *b);
double streaming_gb_s(const struct engine_streaming *n);     /* of the disk while it was busy; NaN: never */
double streaming_hit_rate(const struct engine_streaming *n); /* 0..1; NaN: no expert was used */
/* Members of the object that is open. */
void streaming_json(struct json_out *j, const struct engine_streaming *n);

#endif
