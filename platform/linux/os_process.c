/* os_process.c - the program's surroundings on Linux: where it lies, its environment, its terminal, Ctrl-C.
 *
 * The interrupt flag is file-scope state because a signal handler can reach nothing else. The handler is installed without
 * SA_RESTART, so a read from the terminal returns and its caller can ask os_interrupted. */
#include "platform/os.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { EXIT_INTERRUPTED = 130 };

static atomic_int interrupts; /* written by on_sigint, read by os_interrupted; no data hangs on it, so relaxed */

enum mc_code os_program_dir(char *buf, size_t cap, struct mc_err *err)
{
    const ssize_t n = readlink("/proc/self/exe", buf, cap);
    if (n < 0) return mc_fail(err, MC_EIO, errno, "cannot find the program's own folder: %m");
    if (cap == 0 || (size_t)n >= cap)
        return mc_fail(err, MC_EARG, 0, "the path of the program's folder is longer than %zu", cap);
    buf[n] = '\0';
    char *const slash = strrchr(buf, '/');
    if (slash) *slash = '\0';
    return MC_OK;
}

bool os_env_get(const char *name, char *buf, size_t cap)
{
    const char *const value = getenv(name);
    if (cap > 0) buf[0] = '\0';
    if (!value || strlen(value) >= cap) return false;
    memcpy(buf, value, strlen(value) + 1);
    return true;
}

bool os_stderr_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

bool os_stdin_is_terminal(void)
{
    return isatty(STDIN_FILENO) == 1;
}

void os_console_setup(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file-size limit: write() says so */
    /* Text here is UTF-8 whatever LANG says; without this the line editor drops every character beyond ASCII that is typed. */
    if (!setlocale(LC_CTYPE, "C.UTF-8")) (void)setlocale(LC_CTYPE, "");
}

void os_args_utf8(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
}

static void on_sigint(int sig)
{
    (void)sig;
    if (atomic_fetch_add_explicit(&interrupts, 1, memory_order_relaxed) > 0) _exit(EXIT_INTERRUPTED);
}

void os_interrupt_catch(void)
{
    atomic_store_explicit(&interrupts, 0, memory_order_relaxed);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_sigint;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
}

bool os_interrupted(void)
{
    return atomic_load_explicit(&interrupts, memory_order_relaxed) > 0;
}
