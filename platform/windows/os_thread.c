/* os_thread.c - threads on Windows: the C runtime's start (it sets up its own per-thread data), WaitOnAddress for waiting.
 *
 * SetThreadDescription is looked up by name: the headers of mingw-w64 10 do not know it, and old systems lack it. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <errno.h>
#include <process.h>
#include <stdlib.h>
#include <windows.h>

enum { STACK_BYTES = 8 * 1024 * 1024 };

typedef HRESULT(WINAPI *set_description_fn)(HANDLE, PCWSTR);

struct os_thread {
    HANDLE handle;
    os_thread_fn fn;
    void *arg;
    char name[16];
};

static void set_own_name(const char *name)
{
    const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
    const FARPROC found = kernel ? GetProcAddress(kernel, "SetThreadDescription") : NULL;
    set_description_fn set_description;
    memcpy(&set_description, &found, sizeof found); /* a cast between function types would be warned about */
    wchar_t *const wide = set_description ? utf16_from_utf8(name) : NULL;
    if (wide) (void)set_description(GetCurrentThread(), wide);
    free(wide);
}

static unsigned __stdcall thread_main(void *p)
{
    struct os_thread *const t = p;
    set_own_name(t->name);
    t->fn(t->arg);
    return 0;
}

enum mc_code os_thread_start(os_thread_fn fn, void *arg, const char *name, struct os_thread **out, struct mc_err *err)
{
    struct os_thread *t = calloc(1, sizeof *t);
    if (!t) return mc_fail(err, MC_ENOMEM, 0, "no memory to start thread %s", name);
    t->fn = fn;
    t->arg = arg;
    const size_t n = strlen(name);
    memcpy(t->name, name, n < sizeof t->name ? n : sizeof t->name - 1);
    t->handle = (HANDLE)_beginthreadex(NULL, STACK_BYTES, thread_main, t, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (!t->handle) {
        const int e = errno;
        free(t);
        return mc_fail(err, MC_EIO, e, "cannot start thread %s (error %d); a limit on memory is likely", name, e);
    }
    *out = t;
    return MC_OK;
}

void os_thread_join(struct os_thread *t)
{
    if (!t) return;
    WaitForSingleObject(t->handle, INFINITE);
    CloseHandle(t->handle);
    free(t);
}

void os_wait_u32(const _Atomic uint32_t *word, uint32_t expected)
{
    union { /* the call takes a pointer without these qualifiers, but only reads */
        const _Atomic uint32_t *in;
        volatile void *out;
    } address = {word};
    (void)WaitOnAddress(address.out, &expected, sizeof expected, INFINITE);
}

void os_wake_all_u32(const _Atomic uint32_t *word)
{
    union {
        const _Atomic uint32_t *in;
        void *out;
    } address = {word};
    WakeByAddressAll(address.out);
}

void os_cpu_relax(void)
{
    YieldProcessor();
}

void os_thread_yield(void)
{
    (void)SwitchToThread();
}
