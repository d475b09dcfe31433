/* fuzz_control.c - any bytes as lines of the control socket: every answer is one line of JSON, what is refused changes nothing,
 * and what is taken is within the limits and says the same when it is got and set again. */
#include "platform/base/json.h"
#include "runtime/control/control_request.h"
#include "runtime/control/settings_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct settings_limits limits = {43, 3, 6};

static void check_line(const struct json_out *j)
{
    struct mc_json *root = NULL;
    if (!j->size) return;
    if (memchr(j->text, '\n', j->size) || mc_json_parse((struct mc_span){(const uint8_t *)j->text, j->size}, &root, NULL))
        abort();
    mc_json_destroy(root);
}

static void check_settings(const struct moe_settings *s)
{
    struct settings_fault fault;
    struct settings_refusal why;
    struct moe_settings again = settings_lossless(&limits);
    struct json_out j;
    struct mc_json *root = NULL;
    if (!settings_valid(s, &limits, &fault)) abort();
    json_out_init(&j);
    settings_to_json(s, &j, NULL);
    if (mc_json_parse((struct mc_span){(const uint8_t *)j.text, j.size}, &root, NULL) ||
        !settings_from_json(root, &limits, NULL, &again, &why) || !settings_equal(s, &again))
        abort();
    mc_json_destroy(root);
    json_out_deinit(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const facts[] = {"threads", NULL};
    struct control_requests r = {.start = settings_lossless(&limits),
                                 .host = {.server = "s", .model = "m", .fact_keys = facts}};
    unsigned topics = 0;
    if (settings_box_create(&limits, &r.box, NULL)) abort();
    for (size_t at = 0; at < size;) {
        const uint8_t *const end = memchr(data + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - data) - at : size - at;
        struct control_outcome o;
        struct settings_state before, after;
        settings_box_get(r.box, &before);
        control_request(&r, (struct mc_span){data + at, n}, topics, &o);
        settings_box_get(r.box, &after);
        check_line(&o.answer);
        check_line(&o.late);
        check_settings(&after.settings);
        if (o.refused && (after.generation != before.generation || !o.answer.size || o.deed != CONTROL_ANSWER)) abort();
        if (o.deed == CONTROL_WATCH) topics = o.topics;
        control_outcome_deinit(&o);
        at += n + 1;
    }
    settings_box_destroy(r.box);
    return 0;
}
