/* chat_form.h - messages in, prompt out: the chat form of DeepSeek-V4, byte for byte.
 *
 * The prompt is one string plus the byte ranges that came from outside (`untrusted`); markers may be matched in the other
 * bytes only. Two entries share one renderer: a list of messages (`run`, `chat`) and a request object (the server). */
#ifndef RUNTIME_TEXT_CHAT_FORM_H
#define RUNTIME_TEXT_CHAT_FORM_H

#include "runtime/text/text_buf.h"
#include "runtime/text/tokenizer.h"

struct gguf;
struct mc_json;

/* Which release the effort texts are those of. */
enum chat_profile { CHAT_PROFILE_0731, CHAT_PROFILE_PREVIEW };
enum chat_effort { CHAT_EFFORT_LOW, CHAT_EFFORT_HIGH, CHAT_EFFORT_MAX };
enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_REMINDER };

struct chat_controls {
    bool thinking;
    enum chat_effort effort; /* has an effect only when thinking */
    enum chat_profile profile;
    bool keep_thinking;   /* true: old turns keep their reasoning (they always do when tools are declared) */
    size_t reasoning_max; /* most reasoning tokens the request allows, 0 = no limit; for the caller, not rendered */
};

/* One message of a conversation. All memory is the caller's and only read. */
struct chat_message {
    enum chat_role role;
    struct mc_span content;
    struct mc_span reasoning;         /* assistant only; empty = none */
    struct mc_span call_id;           /* tool only: which call this answers; may be empty */
    const struct mc_json *tool_calls; /* assistant only: the request's array, or NULL */
};

struct chat_prompt {
    struct text_buf text;
    struct text_range *untrusted;
    size_t n_untrusted, untrusted_capacity;
    bool in_reasoning; /* generation starts inside the reasoning: the prompt ends in <think> */
};

void chat_prompt_init(struct chat_prompt *p);
void chat_prompt_deinit(struct chat_prompt *p);

/* What the file's chat template or name says; 0731 when they say nothing. */
enum chat_profile chat_profile_of(const struct gguf *g);

/* "off" | "on" | "low" | "high" | "max" (the words of --think) -> thinking and effort of *c; false for any other word. */
MC_MUST_CHECK bool chat_think_word(const char *word, struct chat_controls *c);

/* Renders a conversation. A last assistant message without calls is a prefill that generation continues.
 * Errors: MC_EARG (no message, malformed tool_calls), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code chat_render(const struct chat_message *messages, size_t n, const struct chat_controls *controls,
                                       struct chat_prompt *out, struct mc_err *err);

/* The thinking and effort of a request over the defaults in *controls (in and out). Errors: MC_EARG naming the field. */
MC_MUST_CHECK enum mc_code chat_request_controls(const struct mc_json *request, struct chat_controls *controls,
                                                 struct mc_err *err);
/* The request's tools array when tools may be called (declared, not empty, tool_choice is not "none"), else NULL. */
const struct mc_json *chat_request_tools(const struct mc_json *request);
/* Renders a request in the OpenAI form: `messages`, `tools`, `tool_choice`, `response_format`. Controls are not read from the
 * request here. Errors: MC_EARG naming the field, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code chat_render_request(const struct mc_json *request, const struct chat_controls *controls,
                                               struct chat_prompt *out, struct mc_err *err);

/* Appends the ids of a prompt: markers count in trusted bytes only. */
MC_MUST_CHECK enum mc_code chat_encode(const struct tokenizer *t, const struct chat_prompt *p, struct token_list *out,
                                       struct mc_err *err);

#endif
