/* os_process.c - the program's surroundings on Windows: where it lies, its environment, its console, Ctrl-C.
 *
 * main's narrow arguments come in an old code page and lose characters; the wide command line is split again and kept as
 * UTF-8 for the life of the process. The interrupt count is file-scope state because a console handler, which runs in a
 * thread of the system's, can reach nothing else. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <fcntl.h>
#include <io.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include <shellapi.h>

enum { EXIT_INTERRUPTED = 130, PATH_CAP = 32768 };

#ifndef ENABLE_VIRTUAL_TERMINAL_PROCESSING
#define ENABLE_VIRTUAL_TERMINAL_PROCESSING 4
#endif

static atomic_int interrupts, terminations; /* no data hangs on them, so relaxed */
static HANDLE main_thread;                  /* set by the first os_interrupt_catch, before other threads are there */

enum mc_code os_program_dir(char *buf, size_t cap, struct mc_err *err)
{
    wchar_t *const wide = malloc(PATH_CAP * sizeof *wide);
    const DWORD n = wide ? GetModuleFileNameW(NULL, wide, PATH_CAP) : 0;
    char *const path = n > 0 && n < PATH_CAP ? utf8_from_utf16(wide) : NULL;
    enum mc_code code = MC_OK;
    if (!path) {
        code = mc_fail(err, MC_EIO, (int)GetLastError(), "cannot find the program's own folder");
    } else {
        char *const slash = strrchr(path, '\\');
        if (slash) *slash = '\0';
        if (strlen(path) >= cap)
            code = mc_fail(err, MC_EARG, 0, "the path of the program's folder is longer than %zu", cap);
        else
            memcpy(buf, path, strlen(path) + 1);
    }
    free(path);
    free(wide);
    return code;
}

bool os_env_get(const char *name, char *buf, size_t cap)
{
    if (cap > 0) buf[0] = '\0';
    wchar_t *const wide_name = utf16_from_utf8(name);
    wchar_t *const wide = malloc(PATH_CAP * sizeof *wide); /* the most a variable can hold */
    SetLastError(ERROR_SUCCESS);
    const DWORD n = wide && wide_name ? GetEnvironmentVariableW(wide_name, wide, PATH_CAP) : 0;
    const bool is_set = wide && wide_name && n < PATH_CAP && (n > 0 || GetLastError() == ERROR_SUCCESS);
    char *const value = is_set ? utf8_from_utf16(wide) : NULL;
    const bool fits = value && strlen(value) < cap;
    if (fits) memcpy(buf, value, strlen(value) + 1);
    free(value);
    free(wide);
    free(wide_name);
    return fits;
}

static bool is_console(DWORD which)
{
    DWORD mode;
    return GetConsoleMode(GetStdHandle(which), &mode) != 0;
}

bool os_stderr_is_terminal(void)
{
    return is_console(STD_ERROR_HANDLE);
}

bool os_stdin_is_terminal(void)
{
    return is_console(STD_INPUT_HANDLE);
}

void os_console_setup(void)
{
    static const DWORD outputs[] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    (void)_setmode(0, _O_BINARY);
    (void)_setmode(1, _O_BINARY);
    (void)_setmode(2, _O_BINARY);
    (void)SetConsoleOutputCP(CP_UTF8); /* fails without a console: nothing to set up then */
    (void)SetConsoleCP(CP_UTF8);
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        DWORD mode;
        const HANDLE h = GetStdHandle(outputs[i]);
        if (GetConsoleMode(h, &mode)) (void)SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
}

void os_args_utf8(int *argc, char ***argv)
{
    int n = 0;
    wchar_t **const wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **const list = wide && n > 0 ? calloc((size_t)n + 1, sizeof *list) : NULL;
    bool complete = list != NULL;
    for (int i = 0; complete && i < n; i++) {
        list[i] = utf8_from_utf16(wide[i]);
        complete = list[i] != NULL;
    }
    LocalFree(wide);
    if (complete) {
        *argc = n;
        *argv = list;
        return;
    }
    for (int i = 0; list && i < n; i++) free(list[i]);
    free(list);
}

static void signal_on(atomic_int *counter)
{
    if (os_interrupted()) TerminateProcess(GetCurrentProcess(), EXIT_INTERRUPTED);
    atomic_store_explicit(counter, 1, memory_order_relaxed);
}

static BOOL WINAPI on_console_event(DWORD event)
{
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) return FALSE;
    signal_on(&interrupts);
    return TRUE;
}

void os_interrupt_catch(void)
{
    atomic_store_explicit(&interrupts, 0, memory_order_relaxed);
    if (!main_thread)
        (void)DuplicateHandle(GetCurrentProcess(), GetCurrentThread(), GetCurrentProcess(), &main_thread, 0, FALSE,
                              DUPLICATE_SAME_ACCESS);
    (void)SetConsoleCtrlHandler(on_console_event, FALSE); /* at most one entry in the system's list */
    (void)SetConsoleCtrlHandler(on_console_event, TRUE);
}

bool os_interrupted(void)
{
    return atomic_load_explicit(&interrupts, memory_order_relaxed) > 0 || os_terminated();
}

bool os_terminated(void)
{
    return atomic_load_explicit(&terminations, memory_order_relaxed) > 0;
}

int os_stdin_byte(unsigned timeout_ms)
{
    (void)timeout_ms;
    return OS_BYTE_END;
}

void os_terminate(void)
{
    signal_on(&terminations);
    if (main_thread) (void)CancelSynchronousIo(main_thread);
}

unsigned long os_process_id(void)
{
    return GetCurrentProcessId();
}

enum mc_code os_cache_folder(char *buf, size_t cap, struct mc_err *err)
{
    char base[1024];
    if (!os_env_get("LOCALAPPDATA", base, sizeof base) || !base[0])
        return mc_fail(err, MC_EIO, 0, "no folder to keep results in: LOCALAPPDATA is not set");
    const int n = snprintf(buf, cap, "%s\\modchip", base);
    wchar_t *const wide = n > 0 && (size_t)n < cap ? utf16_path(buf) : NULL;
    const bool there = wide && (CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
    free(wide);
    return there ? MC_OK : mc_fail(err, MC_EIO, (int)GetLastError(), "%s\\modchip: cannot be made", base);
}
