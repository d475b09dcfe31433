/* cmd_chat.c - `modchip chat`: a conversation in the terminal, or from a script, one line a turn.
 *
 * Each turn renders the whole conversation and lets the session keep the common prefix, so the cache never disagrees with the
 * chat form: old turns lose their reasoning there (chat form, rule 4.1), and their answers are then run again without it. Line
 * editing and history come from libedit where it is installed (this file only); elsewhere lines are read plainly. */
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "runtime/app/talk.h"
#include "runtime/engine/engine.h"
#include "runtime/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>

#if __has_include(<editline/readline.h>)
#include <editline/readline.h>
#define CHAT_HAS_EDITLINE 1
#else
#define CHAT_HAS_EDITLINE 0
#endif

enum { LINE_BYTES_MAX = 16 << 20 };

struct turn {
    enum chat_role role;
    struct text_buf content, reasoning;
};

struct chat {
    struct talk talk;
    struct turn *turns; /* turns[0] may be the system message; then user and assistant by turns */
    size_t n_turns, cap;
    bool terminal; /* someone types */
    struct talk_reasoning_view view;
    struct talk_result last;
    bool has_last;
};

/* ---- the conversation ------------------------------------------------------------------------------------------------- */

static enum mc_code add_turn(struct chat *c, enum chat_role role, struct mc_span text, struct mc_err *err)
{
    if (c->n_turns == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 16;
        struct turn *grown = realloc(c->turns, cap * sizeof *grown);
        if (!grown) return mc_fail(err, MC_ENOMEM, 0, "no memory for the conversation");
        c->turns = grown;
        c->cap = cap;
    }
    struct turn *t = &c->turns[c->n_turns++];
    t->role = role;
    text_buf_init(&t->content);
    text_buf_init(&t->reasoning);
    text_buf_add_span(&t->content, text);
    return text_buf_check(&t->content, err);
}

static void drop_turns(struct chat *c, size_t keep)
{
    while (c->n_turns > keep) {
        struct turn *t = &c->turns[--c->n_turns];
        text_buf_deinit(&t->content);
        text_buf_deinit(&t->reasoning);
    }
}

static size_t n_system(const struct chat *c)
{
    return c->n_turns && c->turns[0].role == CHAT_SYSTEM;
}

static enum mc_code set_system(struct chat *c, const char *text, struct mc_err *err)
{
    drop_turns(c, 0);
    return *text ? add_turn(c, CHAT_SYSTEM, text_span_str(text), err) : MC_OK;
}

static enum mc_code render(struct chat *c, struct token_list *ids, bool *in_reasoning, struct mc_err *err)
{
    struct chat_message *m = calloc(c->n_turns, sizeof *m);
    if (!m) return mc_fail(err, MC_ENOMEM, 0, "no memory for the conversation");
    for (size_t i = 0; i < c->n_turns; i++) {
        m[i].role = c->turns[i].role;
        m[i].content = text_buf_span(&c->turns[i].content);
        m[i].reasoning = text_buf_span(&c->turns[i].reasoning);
    }
    struct chat_prompt p;
    chat_prompt_init(&p);
    enum mc_code code = chat_render(m, c->n_turns, &c->talk.controls, &p, err);
    if (!code) code = talk_check_size(&c->talk, p.text.size, err);
    if (!code) code = chat_encode(c->talk.tok, &p, ids, err);
    *in_reasoning = p.in_reasoning;
    chat_prompt_deinit(&p);
    free(m);
    return code;
}

static void on_content(void *user, struct mc_span text)
{
    struct chat *c = user;
    talk_reasoning_end(&c->view);
    text_buf_add_span(&c->turns[c->n_turns - 1].content, text);
    fwrite(text.data, 1, text.size, stdout);
    fflush(stdout);
}

static void on_reasoning(void *user, struct mc_span text)
{
    struct chat *c = user;
    text_buf_add_span(&c->turns[c->n_turns - 1].reasoning, text);
    talk_reasoning_show(&c->view, text);
}

/* The answer to the last turn, which is the user's. An answer that is cut stays in the conversation as far as it came. */
static enum mc_code answer(struct chat *c, struct mc_err *err)
{
    struct token_list ids;
    token_list_init(&ids);
    bool in_reasoning = false;
    enum mc_code code = render(c, &ids, &in_reasoning, err);
    if (!code) code = add_turn(c, CHAT_ASSISTANT, text_span_str(""), err);
    if (!code) {
        const struct talk_sink sink = {c, on_content, on_reasoning};
        if (c->has_last) talk_result_free(&c->last);
        code = talk_answer(&c->talk, &ids, in_reasoning, false, &sink, &c->last, err);
        c->has_last = true;
        talk_reasoning_end(&c->view);
        if (!code) putchar('\n');
        fflush(stdout);
    }
    if (!code) code = text_buf_check(&c->turns[c->n_turns - 1].content, err);
    token_list_deinit(&ids);
    return code;
}

static enum mc_code take_turn(struct chat *c, const char *line, struct mc_err *err)
{
    const size_t before = c->n_turns;
    enum mc_code code = add_turn(c, CHAT_USER, text_span_str(line), err);
    if (!code) code = answer(c, err);
    if (code == MC_EFULL || code == MC_ECANCELLED) { /* nothing has been answered: as if it had not been said */
        drop_turns(c, before);
        if (!c->terminal || os_terminated()) return code;
        fprintf(stderr, "modchip: %s%s\n", err->msg, code == MC_EFULL ? "; /undo or /reset makes room" : "");
        if (code == MC_ECANCELLED) os_interrupt_catch(); /* forgotten: the conversation goes on */
        return MC_OK;
    }
    if (code || c->last.finish == TALK_STOP) return code;
    if (c->last.finish == TALK_LENGTH && !c->talk.quiet)
        fprintf(stderr, "modchip: the answer was cut here (-n, or the context is full)\n");
    if (c->last.finish != TALK_INTERRUPTED) return MC_OK;
    talk_print_stats(&c->talk, &c->last);
    if (!c->terminal || os_terminated()) return mc_fail(err, MC_ECANCELLED, 0, "interrupted");
    os_interrupt_catch(); /* forgotten: the conversation goes on */
    return MC_OK;
}

/* ---- commands --------------------------------------------------------------------------------------------------------- */

static const char chat_help[] = "/help           this list\n"
                                "/reset          forget the conversation, keep the system text\n"
                                "/system TEXT    start anew with this system text (empty: none)\n"
                                "/think off|on|high|max\n"
                                "/undo           take back the last question and its answer\n"
                                "/stats          speed of the last answer, fill of the context\n"
                                "/quit           the end; so does an empty input (Ctrl-D)\n"
                                "Lines that start with // are sent with one / less.\n";

/* A line that confirms a command. */
static void say(const struct chat *c, const char *line)
{
    if (!c->talk.quiet) fprintf(stderr, "modchip: %s\n", line);
}

/* *quit is set by /quit. A mistake is a line on stderr; a script ends with it. */
static enum mc_code run_command(struct chat *c, const char *line, bool *quit, struct mc_err *err)
{
    char word[16];
    const size_t len = strcspn(line, " ");
    snprintf(word, sizeof word, "%.*s", (int)(len < 15 ? len : 15), line);
    const char *rest = line + len + strspn(line + len, " ");
    if (!strcmp(word, "/help")) {
        fputs(chat_help, stderr);
    } else if (!strcmp(word, "/quit") || !strcmp(word, "/exit")) {
        *quit = true;
    } else if (!strcmp(word, "/reset")) {
        drop_turns(c, n_system(c));
        say(c, n_system(c) ? "the conversation is forgotten, the system text stays" : "the conversation is forgotten");
    } else if (!strcmp(word, "/system")) {
        const enum mc_code code = set_system(c, rest, err);
        if (!code) say(c, *rest ? "a new conversation with this system text" : "a new conversation without a system text");
        return code;
    } else if (!strcmp(word, "/think")) {
        if (!chat_think_word(rest, &c->talk.controls))
            return mc_fail(err, MC_EARG, 0, "/think takes off, on, high or max, not '%.40s'", rest);
    } else if (!strcmp(word, "/undo")) {
        const size_t first = n_system(c), before = c->n_turns;
        drop_turns(c, before >= first + 2 ? before - 2 : first);
        say(c, before > first ? "the last question and its answer are taken back" : "there is nothing to take back");
    } else if (!strcmp(word, "/stats")) {
        if (c->has_last)
            talk_print_stats(&c->talk, &c->last);
        else
            fputs("modchip: nothing has been said yet\n", stderr);
    } else {
        return mc_fail(err, MC_EARG, 0, "there is no %s here; /help lists what there is", word);
    }
    return MC_OK;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------ */

/* One line of standard input without its end; NULL at the end of input or when Ctrl-C interrupted it. malloc'ed. */
static char *read_plain_line(void)
{
    size_t n = 0, cap = 256;
    char *line = malloc(cap);
    while (line) {
        if (!fgets(line + n, (int)(cap - n), stdin)) break;
        n += strlen(line + n);
        if (n && line[n - 1] == '\n') {
            while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = '\0';
            return line;
        }
        if (n + 1 < cap) break; /* the last line has no end, or holds a NUL */
        char *grown = cap < LINE_BYTES_MAX ? realloc(line, cap *= 2) : NULL;
        if (!grown) free(line);
        line = grown;
    }
    if (line && n && !os_interrupted()) return line;
    free(line);
    return NULL;
}

#if CHAT_HAS_EDITLINE
/* The next character for the line editor, as a code point; the end when the program shall end. */
static int read_key(FILE *in)
{
    uint8_t bytes[4];
    uint32_t cp = UTF8_REPLACEMENT;
    size_t n = 0, size;
    enum utf8_status status = UTF8_CUT;
    (void)in;
    while (status == UTF8_CUT && n < sizeof bytes) {
        int byte = OS_BYTE_NONE;
        while (byte == OS_BYTE_NONE && !os_interrupted()) byte = os_stdin_byte(100);
        if (byte < 0) return OS_BYTE_END;
        bytes[n++] = (uint8_t)byte;
        status = utf8_read(bytes, n, &cp, &size);
    }
    return status == UTF8_VALID ? (int)cp : (int)UTF8_REPLACEMENT;
}
#endif

static char *read_line(const struct chat *c)
{
#if CHAT_HAS_EDITLINE
    if (c->terminal) {
        rl_getc_function = read_key;
        rl_catch_signals = 0; /* the editor would send those that it catches on to the whole process group */
        char *line = readline("> ");
        if (line && *line) add_history(line);
        return line;
    }
#endif
    if (c->terminal) {
        fputs("> ", stdout);
        fflush(stdout);
    }
    return read_plain_line();
}

static enum mc_code converse(struct chat *c, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    bool quit = false;
    while (!quit) {
        char *line = read_line(c);
        if (!line) break;
        if (line[0] == '/' && line[1] != '/')
            code = run_command(c, line, &quit, err);
        else if (*line)
            code = take_turn(c, line[0] == '/' ? line + 1 : line, err);
        free(line);
        if (code == MC_EARG && c->terminal) {
            fprintf(stderr, "modchip: %s\n", err->msg);
            code = MC_OK;
        }
        if (code) return code;
        code = output_flush(err);
        if (code) return code;
    }
    if (c->terminal && !quit) fputc('\n', stderr);
    return check_interrupt(err);
}

enum mc_code cmd_chat(const struct app_options *o, struct mc_err *err)
{
    struct chat c = {.terminal = os_stdin_is_terminal()};
    enum mc_code code = talk_open(&c.talk, o, err);
    c.view.enabled = os_stderr_is_terminal() && !c.talk.quiet;
    if (!code) code = tokenizer_require_chat(c.talk.tok, err);
    if (!code && opt_text(o, OPT_SYSTEM)) code = set_system(&c, opt_text(o, OPT_SYSTEM), err);
    if (!code && c.terminal && !c.talk.quiet) fputs("modchip: /help lists the commands, Ctrl-D ends\n", stderr);
    if (!code) code = converse(&c, err);
    if (c.has_last) talk_result_free(&c.last);
    drop_turns(&c, 0);
    free(c.turns);
    talk_close(&c.talk);
    return code;
}
