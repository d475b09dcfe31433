/* settings_json.h - the settings as JSON, with the keys of control.md: for the control socket and for files. */
#ifndef RUNTIME_CONTROL_SETTINGS_JSON_H
#define RUNTIME_CONTROL_SETTINGS_JSON_H

#include "platform/base/json.h"
#include "platform/base/json_out.h"
#include "runtime/control/settings.h"

/* The value of one key, as member `name` of the object that is being written. */
void settings_value_to_json(enum settings_key key, const struct moe_settings *s, struct json_out *j, const char *name);
/* An object of all keys. */
void settings_to_json(const struct moe_settings *s, struct json_out *j, const char *name);

/* What was wrong with the members of an object. */
struct settings_refusal {
    const char *code; /* "unknown_key", "read_only", "bad_value" (literals) */
    char key[64];     /* cut if longer */
    char text[160];
};

/* Takes the members of `values` over *s: "profile" first, which sets all but the scope, then each key. The result is checked as
 * a whole. False: *why says what is wrong, and *s is as it was. `read_only`: names that are known but cannot be set, up to a
 * NULL; may be NULL. */
bool settings_from_json(const struct mc_json *values, const struct settings_limits *m, const char *const *read_only,
                        struct moe_settings *s, struct settings_refusal *why);

/* Name of the profile that says the same, whatever the scope; NULL: none does. */
const char *settings_profile_of(const struct moe_settings *s, const struct settings_limits *m);

#endif
