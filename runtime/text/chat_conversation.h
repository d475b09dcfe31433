/* chat_conversation.h - a request after normalisation, as the renderer takes it; for chat_*.c only. */
#ifndef RUNTIME_TEXT_CHAT_CONVERSATION_H
#define RUNTIME_TEXT_CHAT_CONVERSATION_H

#include "runtime/text/chat_form.h"

struct chat_conversation {
    const struct chat_message *messages;
    size_t n;
    const struct mc_json *tools; /* array, or NULL: none; if there are any, messages[0] is a system message */
    bool has_schema;
    const struct mc_json *schema; /* NULL: any object */
    size_t schema_at;             /* the system message it goes onto */
};

/* calls: the tool_calls of messages[at], or NULL. Errors: MC_EARG naming the field. */
MC_MUST_CHECK enum mc_code chat_check_calls(const struct mc_json *calls, size_t at, struct mc_err *err);
MC_MUST_CHECK enum mc_code chat_conversation_render(const struct chat_conversation *c, const struct chat_controls *controls,
                                                    struct chat_prompt *out, struct mc_err *err);

#endif
