/* cmd_tokenize.c - `modchip tokenize` and `modchip detokenize`. Only the vocabulary is read. */
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/numbers.h"
#include "runtime/app/options.h"
#include "runtime/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum mc_code cmd_tokenize(const struct app_options *o, struct mc_err *err)
{
    char *text = NULL;
    size_t size = 0;
    struct tokenizer *tok = NULL;
    struct token_list ids;
    struct json_out j;
    token_list_init(&ids);
    json_out_init(&j);
    enum mc_code code = input_text(o, &text, &size, err);
    if (!code) code = model_tokenizer(o, &tok, err);
    if (!code) code = tokenizer_encode(tok, text_span(text, size), TOKENIZER_ALL, NULL, 0, &ids, err);
    if (!code) {
        json_out_array(&j, NULL);
        for (size_t i = 0; i < ids.n; i++) json_out_int(&j, NULL, ids.ids[i]);
        json_out_array_end(&j);
        code = json_out_finish(&j, err);
    }
    json_out_deinit(&j);
    token_list_deinit(&ids);
    tokenizer_destroy(tok);
    free(text);
    return code;
}

/* The list may stand in --tokens, in -p, in a file or on standard input. */
static enum mc_code read_ids(const struct app_options *o, int32_t max, int32_t **ids, size_t *n, struct mc_err *err)
{
    if (opt_text(o, OPT_TOKENS)) return number_list_arg(opt_text(o, OPT_TOKENS), "--tokens", 0, max, ids, n, err);
    char *text;
    size_t size;
    enum mc_code code = input_text(o, &text, &size, err);
    if (code) return code;
    code = number_list(text_span(text, size), "token ids", 0, max, ids, n, err);
    free(text);
    return code;
}

static enum mc_code print_bytes(const struct tokenizer *tok, const int32_t *ids, size_t n, bool json, struct mc_err *err)
{
    struct text_buf text;
    text_buf_init(&text);
    for (size_t i = 0; i < n; i++) text_buf_add_span(&text, tokenizer_bytes(tok, ids[i]));
    enum mc_code code = text_buf_check(&text, err);
    if (!code && json) {
        struct json_out j;
        json_out_init(&j);
        json_out_object(&j, NULL);
        json_out_bytes(&j, "text", text.data, text.size);
        json_out_uint(&j, "tokens", n);
        json_out_object_end(&j);
        code = json_out_finish(&j, err);
    } else if (!code) {
        fwrite(text.data, 1, text.size, stdout);
    }
    text_buf_deinit(&text);
    return code;
}

enum mc_code cmd_detokenize(const struct app_options *o, struct mc_err *err)
{
    struct tokenizer *tok;
    enum mc_code code = model_tokenizer(o, &tok, err);
    if (code) return code;
    int32_t *ids = NULL;
    size_t n = 0;
    code = read_ids(o, (int32_t)tokenizer_n_tokens(tok) - 1, &ids, &n, err);
    if (!code) code = print_bytes(tok, ids, n, opt_flag(o, OPT_JSON), err);
    free(ids);
    tokenizer_destroy(tok);
    return code;
}
