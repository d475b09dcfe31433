/* os_process.c - the program's surroundings on Linux: where it lies, its environment, its terminal, Ctrl-C.
 *
 * The interrupt flag is file-scope state because a signal handler can reach nothing else. The handler is installed without
 * SA_RESTART, so a read from the terminal returns and its caller can ask os_interrupted. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXIT_INTERRUPTED = 130 };

static atomic_int interrupts, terminations; /* written by on_signal; no data hangs on them, so relaxed */

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

int os_stdin_byte(unsigned timeout_ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char byte;
    if (poll(&p, 1, (int)timeout_ms) <= 0) return OS_BYTE_NONE;
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    return n == 1 ? byte : n < 0 && errno == EINTR ? OS_BYTE_NONE : OS_BYTE_END;
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

static void on_signal(int sig)
{
    atomic_int *const counter = sig == SIGINT ? &interrupts : &terminations;
    if (os_interrupted()) _exit(EXIT_INTERRUPTED);
    atomic_store_explicit(counter, 1, memory_order_relaxed);
}

static void catch_signal(int sig)
{
    struct sigaction action, now;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    if (sig == SIGHUP && !sigaction(sig, NULL, &now) && now.sa_handler == SIG_IGN) return; /* nohup */
    (void)sigaction(sig, &action, NULL);
}

void os_interrupt_catch(void)
{
    atomic_store_explicit(&interrupts, 0, memory_order_relaxed);
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
}

bool os_interrupted(void)
{
    return atomic_load_explicit(&interrupts, memory_order_relaxed) > 0 || os_terminated();
}

bool os_terminated(void)
{
    return atomic_load_explicit(&terminations, memory_order_relaxed) > 0;
}

void os_terminate(void)
{
    (void)syscall(SYS_tgkill, getpid(), getpid(), SIGTERM); /* the main thread has the number of the process */
}

unsigned long os_process_id(void)
{
    return (unsigned long)getpid();
}

void linux_make_folders(char *path, size_t there)
{
    for (char *p = path + there; p && *p == '/';) {
        char *const end = strchr(p + 1, '/');
        if (end) *end = '\0';
        (void)mkdir(path, 0700);
        if (end) *end = '/';
        p = end;
    }
}

enum mc_code os_cache_folder(char *buf, size_t cap, struct mc_err *err)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    const bool own = cache && cache[0] == '/';
    const char *const base = own ? cache : home;
    struct stat st;
    if (!base || base[0] != '/')
        return mc_fail(err, MC_EIO, 0, "no folder to keep results in: neither XDG_CACHE_HOME nor HOME is set");
    const int n = snprintf(buf, cap, "%s%s/modchip", base, own ? "" : "/.cache");
    if (n < 0 || (size_t)n >= cap) return mc_fail(err, MC_EIO, 0, "the path of the cache folder is too long");
    linux_make_folders(buf, own ? 0 : strlen(base));
    if (stat(buf, &st) || !S_ISDIR(st.st_mode)) return mc_fail(err, MC_EIO, errno, "%s: cannot be made: %m", buf);
    return MC_OK;
}
