/* cmd_run.c - `modchip run`: one prompt, one answer.
 *
 * In the chat form stdout gets the content alone; reasoning is shown on stderr when that is a terminal and is a key of its own
 * with
 * --json. With --raw every token is content. */
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/streaming_out.h"
#include "runtime/app/talk.h"

#include <stdio.h>
#include <stdlib.h>

struct output {
    bool json;
    struct text_buf content, reasoning; /* with --json only */
    struct talk_reasoning_view view;
};

static void on_content(void *user, struct mc_span text)
{
    struct output *out = user;
    if (out->json) {
        text_buf_add_span(&out->content, text);
        return;
    }
    talk_reasoning_end(&out->view);
    fwrite(text.data, 1, text.size, stdout);
    fflush(stdout);
}

static void on_reasoning(void *user, struct mc_span text)
{
    struct output *out = user;
    if (out->json)
        text_buf_add_span(&out->reasoning, text);
    else
        talk_reasoning_show(&out->view, text);
}

/* The ids of the prompt; *in_reasoning tells what the answer starts with. */
static enum mc_code make_prompt(const struct talk *t, const struct app_options *o, struct mc_span text, struct token_list *ids,
                                bool *in_reasoning, struct mc_err *err)
{
    *in_reasoning = false;
    enum mc_code code = talk_check_size(t, text.size, err);
    if (code) return code;
    if (opt_flag(o, OPT_RAW)) {
        code = tokenizer_encode_prompt(t->tok, text, true, ids, err);
        if (!code && ids->n && ids->ids[0] != tokenizer_special(t->tok)->bos)
            fprintf(stderr,
                    "modchip: warning: the raw prompt does not start with the begin token; models work badly without it\n");
        return code;
    }
    struct chat_message messages[2] = {{0}};
    size_t n = 0;
    if (opt_text(o, OPT_SYSTEM)) {
        messages[n].role = CHAT_SYSTEM;
        messages[n++].content = text_span_str(opt_text(o, OPT_SYSTEM));
    }
    messages[n].role = CHAT_USER;
    messages[n++].content = text;
    code = tokenizer_require_chat(t->tok, err);
    if (code) return code;
    struct chat_prompt prompt;
    chat_prompt_init(&prompt);
    code = chat_render(messages, n, &t->controls, &prompt, err);
    if (!code) code = chat_encode(t->tok, &prompt, ids, err);
    *in_reasoning = prompt.in_reasoning;
    chat_prompt_deinit(&prompt);
    return code;
}

static enum mc_code print_json(const struct talk *t, const struct output *out, const struct talk_result *r, struct mc_err *err)
{
    enum mc_code code = text_buf_check(&out->content, err);
    if (!code) code = text_buf_check(&out->reasoning, err);
    if (code) return code;
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_bytes(&j, "text", out->content.data, out->content.size);
    if (out->reasoning.size) json_out_bytes(&j, "reasoning", out->reasoning.data, out->reasoning.size);
    json_out_uint(&j, "tokens", r->generated.n);
    json_out_uint(&j, "prompt_tokens", r->n_prompt);
    json_out_text(&j, "finish_reason", talk_finish_name(r->finish));
    json_out_num(&j, "prefill_tok_s", talk_prefill_rate(r));
    json_out_num(&j, "decode_tok_s", talk_decode_rate(r));
    if (r->streamed.hits + r->streamed.misses) {
        json_out_object(&j, "streaming");
        streaming_json(&j, &r->streamed);
        json_out_object_end(&j);
    }
    json_out_uint(&j, "seed", t->seed);
    json_out_array(&j, "token_ids");
    for (size_t i = 0; i < r->generated.n; i++) json_out_int(&j, NULL, r->generated.ids[i]);
    json_out_array_end(&j);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static enum mc_code answer(struct talk *t, const struct app_options *o, struct mc_span text, struct mc_err *err)
{
    struct output out = {.json = opt_flag(o, OPT_JSON), .view = {.enabled = os_stderr_is_terminal() && !t->quiet}};
    text_buf_init(&out.content);
    text_buf_init(&out.reasoning);
    struct token_list ids;
    token_list_init(&ids);
    struct talk_result r = {0};
    const struct talk_sink sink = {&out, on_content, on_reasoning};
    bool in_reasoning;
    enum mc_code code = make_prompt(t, o, text, &ids, &in_reasoning, err);
    if (!code) {
        code = talk_answer(t, &ids, in_reasoning, opt_flag(o, OPT_RAW), &sink, &r, err);
        talk_reasoning_end(&out.view);
        /* stdout is the answer to the byte; the line break that a person wants goes to the person. */
        if (!out.json && r.generated.n && os_stderr_is_terminal()) fputc('\n', stderr);
    }
    if (!code && out.json) code = print_json(t, &out, &r, err);
    if (!code) talk_print_stats(t, &r);
    if (!code && r.finish == TALK_INTERRUPTED) code = mc_fail(err, MC_ECANCELLED, 0, "interrupted");
    talk_result_free(&r);
    token_list_deinit(&ids);
    text_buf_deinit(&out.content);
    text_buf_deinit(&out.reasoning);
    return code;
}

enum mc_code cmd_run(const struct app_options *o, struct mc_err *err)
{
    char *text;
    size_t size;
    enum mc_code code = input_text(o, &text, &size, err);
    if (code) return code;
    struct talk t;
    code = talk_open(&t, o, err);
    if (!code) code = answer(&t, o, text_span(text, size), err);
    talk_close(&t);
    free(text);
    return code;
}
