/* os_socket.c - talking to other programs of the same user on Windows: named pipes, see os.h.
 *
 * Every connection keeps one read of its own pending, whose bytes wait in the connection until somebody asks; a write is copied
 * and goes on by itself, one at a time. The listener always has one instance of the pipe that waits for a caller. The first
 * instance is made with the flag that refuses a name somebody else listens at; a name goes with its last handle, so a killed
 * program leaves nothing. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include <psapi.h>
#include <sddl.h>

enum { READ_CAP = 16 << 10, WRITE_CAP = 64 << 10, SID_CAP = 256, PROCESSES_MAX = 8192, CALL_WAIT_MS = 2000, RETRY_MS = 500 };
#define PIPE_PREFIX "\\\\.\\pipe\\"

#ifndef PIPE_REJECT_REMOTE_CLIENTS
#define PIPE_REJECT_REMOTE_CLIENTS 8
#endif

struct os_conn {
    HANDLE pipe;
    OVERLAPPED read, write;
    bool reading, writing, ended;
    DWORD from, to; /* bytes of in that wait */
    uint8_t in[READ_CAP], out[WRITE_CAP];
};

struct os_listener {
    wchar_t *name;
    HANDLE instance, wake; /* instance: waits for a caller; INVALID_HANDLE_VALUE: none could be made */
    OVERLAPPED call;
    bool called; /* the caller is there already */
};

/* ---- who ----------------------------------------------------------------------------------------------------------------- */

union sid {
    TOKEN_USER user;
    uint8_t bytes[sizeof(TOKEN_USER) + SID_CAP];
};

static bool user_of(HANDLE process, union sid *out)
{
    HANDLE token;
    DWORD n;
    if (!OpenProcessToken(process, TOKEN_QUERY, &token)) return false;
    const bool ok = GetTokenInformation(token, TokenUser, out, sizeof *out, &n) != 0;
    CloseHandle(token);
    return ok;
}

/* Does this process belong to our user or to the system? */
static bool is_ours(ULONG pid)
{
    union sid us, them;
    const HANDLE h = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, pid);
    if (!h) return false;
    const bool ok = user_of(GetCurrentProcess(), &us) && user_of(h, &them) &&
                    (EqualSid(us.user.User.Sid, them.user.User.Sid) || IsWellKnownSid(them.user.User.Sid, WinLocalSystemSid));
    CloseHandle(h);
    return ok;
}

/* Rights for our user and the system alone. LocalFree the descriptor. */
static PSECURITY_DESCRIPTOR rights(void)
{
    union sid us;
    wchar_t *text = NULL, sddl[400];
    PSECURITY_DESCRIPTOR d = NULL;
    if (!user_of(GetCurrentProcess(), &us) || !ConvertSidToStringSidW(us.user.User.Sid, &text)) return NULL;
    _snwprintf(sddl, ARRAY_LEN(sddl) - 1, L"D:P(A;;GA;;;SY)(A;;GA;;;%ls)", text);
    sddl[ARRAY_LEN(sddl) - 1] = L'\0';
    LocalFree(text);
    return ConvertStringSecurityDescriptorToSecurityDescriptorW(sddl, SDDL_REVISION_1, &d, NULL) ? d : NULL;
}

/* ---- places ---------------------------------------------------------------------------------------------------------- */

enum mc_code os_listener_path(char *buf, size_t cap, struct mc_err *err)
{
    const int n = snprintf(buf, cap, PIPE_PREFIX "modchip-%lu", GetCurrentProcessId());
    return n > 0 && (size_t)n < cap ? MC_OK : mc_fail(err, MC_EARG, 0, "the name of the control pipe is too long");
}

void os_listener_each(void (*fn)(void *user, const char *path), void *user)
{
    DWORD *const pids = malloc(PROCESSES_MAX * sizeof *pids);
    DWORD bytes = 0;
    if (pids && EnumProcesses(pids, PROCESSES_MAX * sizeof *pids, &bytes))
        for (DWORD i = 0; i < bytes / sizeof *pids; i++) {
            char path[64];
            wchar_t wide[64];
            if (pids[i] == GetCurrentProcessId()) continue;
            snprintf(path, sizeof path, PIPE_PREFIX "modchip-%lu", pids[i]);
            for (size_t c = 0; c < sizeof path; c++) wide[c] = (wchar_t)path[c];
            if (WaitNamedPipeW(wide, 1) || GetLastError() == ERROR_SEM_TIMEOUT) fn(user, path);
        }
    free(pids);
}

/* ---- listening -------------------------------------------------------------------------------------------------------- */

static bool start_call(struct os_listener *l, bool first)
{
    const PSECURITY_DESCRIPTOR d = rights();
    if (!d) return false;
    SECURITY_ATTRIBUTES sa = {sizeof sa, d, FALSE};
    l->instance =
        CreateNamedPipeW(l->name, PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | (first ? FILE_FLAG_FIRST_PIPE_INSTANCE : 0),
                         PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS, PIPE_UNLIMITED_INSTANCES,
                         WRITE_CAP, WRITE_CAP, 0, &sa);
    const DWORD e = GetLastError();
    LocalFree(d);
    SetLastError(e);
    if (l->instance == INVALID_HANDLE_VALUE) return false;
    ResetEvent(l->call.hEvent);
    l->called = false;
    if (ConnectNamedPipe(l->instance, &l->call)) return true;
    switch (GetLastError()) {
    case ERROR_IO_PENDING:
        return true;
    case ERROR_PIPE_CONNECTED:
        l->called = true;
        SetEvent(l->call.hEvent);
        return true;
    default:
        CloseHandle(l->instance);
        l->instance = INVALID_HANDLE_VALUE;
        return false;
    }
}

enum mc_code os_listener_open(const char *path, struct os_listener **out, struct mc_err *err)
{
    char why[ERROR_TEXT_CAP];
    if (strncmp(path, PIPE_PREFIX, strlen(PIPE_PREFIX)) != 0 || strlen(path) == strlen(PIPE_PREFIX) || strlen(path) > 250)
        return mc_fail(err, MC_EARG, 0, "%s: the name of a pipe is " PIPE_PREFIX "NAME, of at most 250 bytes", path);
    struct os_listener *l = calloc(1, sizeof *l);
    if (!l) return mc_fail(err, MC_ENOMEM, 0, "no memory for the control pipe");
    l->instance = INVALID_HANDLE_VALUE;
    l->name = utf16_from_utf8(path);
    l->wake = CreateEventW(NULL, FALSE, FALSE, NULL);
    l->call.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
    /* Asked first because not every system (wine 8) heeds the flag of the first instance, which alone leaves no gap. */
    const bool taken = l->name && (WaitNamedPipeW(l->name, 1) || GetLastError() != ERROR_FILE_NOT_FOUND);
    if (!taken && l->name && l->wake && l->call.hEvent && start_call(l, true)) {
        *out = l;
        return MC_OK;
    }
    const DWORD e = taken ? ERROR_PIPE_BUSY : GetLastError();
    os_listener_close(l);
    if (e == ERROR_ACCESS_DENIED || e == ERROR_PIPE_BUSY)
        return mc_fail(err, MC_EBUSY, (int)e, "%s: another program listens there; choose another name", path);
    return mc_fail(err, MC_EIO, (int)e, "%s: cannot be made: %s", path, windows_error_text(e, why));
}

void os_listener_close(struct os_listener *l)
{
    DWORD n;
    if (!l) return;
    if (l->instance != INVALID_HANDLE_VALUE) {
        if (!l->called && CancelIoEx(l->instance, &l->call)) (void)GetOverlappedResult(l->instance, &l->call, &n, TRUE);
        CloseHandle(l->instance);
    }
    if (l->wake) CloseHandle(l->wake);
    if (l->call.hEvent) CloseHandle(l->call.hEvent);
    free(l->name);
    free(l);
}

void os_listener_wake(struct os_listener *l)
{
    (void)SetEvent(l->wake);
}

/* ---- connections ------------------------------------------------------------------------------------------------------ */

/* Takes the handle, which is closed when there is no memory. */
static struct os_conn *conn_of(HANDLE pipe)
{
    struct os_conn *const c = calloc(1, sizeof *c);
    if (c) {
        c->pipe = pipe;
        c->read.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
        c->write.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
        if (c->read.hEvent && c->write.hEvent) return c;
        os_conn_close(c);
    } else {
        CloseHandle(pipe);
    }
    return NULL;
}

enum os_caller os_listener_accept(struct os_listener *l, struct os_conn **out)
{
    DWORD n;
    ULONG pid = 0;
    if (l->instance == INVALID_HANDLE_VALUE) return start_call(l, false) ? OS_CALLER_NONE : OS_CALLER_FAILED;
    if (WaitForSingleObject(l->call.hEvent, 0) != WAIT_OBJECT_0) return OS_CALLER_NONE;
    const HANDLE pipe = l->instance;
    const bool came = l->called || GetOverlappedResult(pipe, &l->call, &n, FALSE);
    l->instance = INVALID_HANDLE_VALUE;
    (void)start_call(l, false); /* if it fails it is tried again at the next accept */
    if (!came) {
        CloseHandle(pipe);
        return OS_CALLER_NONE;
    }
    if (!GetNamedPipeClientProcessId(pipe, &pid) || !is_ours(pid)) {
        CloseHandle(pipe);
        return OS_CALLER_STRANGER;
    }
    struct os_conn *const c = conn_of(pipe);
    if (!c) return OS_CALLER_FAILED;
    *out = c;
    return OS_CALLER_OURS;
}

enum mc_code os_conn_open(const char *path, struct os_conn **out, struct mc_err *err)
{
    char why[ERROR_TEXT_CAP];
    ULONG pid = 0;
    wchar_t *const name = utf16_from_utf8(path);
    if (!name || strncmp(path, PIPE_PREFIX, strlen(PIPE_PREFIX)) != 0) {
        free(name);
        return mc_fail(err, MC_EARG, 0, "%s: the name of a pipe is " PIPE_PREFIX "NAME", path);
    }
    HANDLE h;
    DWORD e = 0;
    for (unsigned tries = 0; tries < 20; tries++) { /* the listener may just be busy with another caller */
        h = CreateFileW(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                        FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION, NULL);
        e = GetLastError();
        if (h != INVALID_HANDLE_VALUE || e != ERROR_PIPE_BUSY) break;
        (void)WaitNamedPipeW(name, CALL_WAIT_MS / 20);
    }
    free(name);
    if (h == INVALID_HANDLE_VALUE)
        return mc_fail(err, MC_EIO, (int)e, "%s: nobody listens there: %s", path, windows_error_text(e, why));
    if (!GetNamedPipeServerProcessId(h, &pid) || !is_ours(pid)) {
        CloseHandle(h);
        return mc_fail(err, MC_EIO, 0, "%s: the program that listens there belongs to another user", path);
    }
    struct os_conn *const c = conn_of(h);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "no memory for a connection");
    *out = c;
    return MC_OK;
}

/* Without DisconnectNamedPipe, which would take back what the other end has not read yet. */
void os_conn_close(struct os_conn *c)
{
    DWORD n;
    if (!c) return;
    if (c->reading) {
        (void)CancelIoEx(c->pipe, &c->read);
        (void)GetOverlappedResult(c->pipe, &c->read, &n, TRUE);
    }
    if (c->writing) {
        (void)CancelIoEx(c->pipe, &c->write);
        (void)GetOverlappedResult(c->pipe, &c->write, &n, TRUE);
    }
    CloseHandle(c->pipe);
    if (c->read.hEvent) CloseHandle(c->read.hEvent);
    if (c->write.hEvent) CloseHandle(c->write.hEvent);
    free(c);
}

/* Starts a read if none is under way, and takes what has come. */
static void fill(struct os_conn *c)
{
    DWORD n = 0;
    if (c->ended || c->from < c->to) return;
    if (!c->reading) {
        ResetEvent(c->read.hEvent);
        c->reading = ReadFile(c->pipe, c->in, READ_CAP, NULL, &c->read) || GetLastError() == ERROR_IO_PENDING;
        c->ended = !c->reading;
        if (c->ended) return;
    }
    if (GetOverlappedResult(c->pipe, &c->read, &n, FALSE)) {
        c->reading = false;
        c->from = 0;
        c->to = n;
    } else if (GetLastError() != ERROR_IO_INCOMPLETE) {
        c->reading = false;
        c->ended = true;
    }
}

int64_t os_conn_read(struct os_conn *c, void *buf, size_t size)
{
    fill(c);
    const size_t there = c->to - c->from, n = there < size ? there : size;
    memcpy(buf, c->in + c->from, n);
    c->from += (DWORD)n;
    return n == 0 && c->ended ? -1 : (int64_t)n;
}

int64_t os_conn_write(struct os_conn *c, const void *data, size_t size)
{
    DWORD n = 0;
    if (c->writing) {
        if (!GetOverlappedResult(c->pipe, &c->write, &n, FALSE)) return GetLastError() == ERROR_IO_INCOMPLETE ? 0 : -1;
        c->writing = false;
    }
    if (size > WRITE_CAP) size = WRITE_CAP;
    memcpy(c->out, data, size);
    ResetEvent(c->write.hEvent);
    c->writing = WriteFile(c->pipe, c->out, (DWORD)size, NULL, &c->write) || GetLastError() == ERROR_IO_PENDING;
    return c->writing ? (int64_t)size : -1;
}

void os_conn_wait(struct os_listener *l, const struct os_conn_wish *wishes, size_t n, int timeout_ms)
{
    HANDLE events[2 * OS_CONNS_MAX + 2];
    DWORD at = 0;
    bool ready = false;
    if (l) {
        events[at++] = l->wake;
        if (l->instance != INVALID_HANDLE_VALUE) events[at++] = l->call.hEvent;
    }
    for (size_t i = 0; i < n && !ready; i++) {
        struct os_conn *const c = wishes[i].conn;
        if (wishes[i].read) {
            fill(c);
            ready = ready || c->ended || c->from < c->to;
            if (c->reading) events[at++] = c->read.hEvent;
        }
        if (wishes[i].write) {
            ready = ready || !c->writing;
            if (c->writing) events[at++] = c->write.hEvent;
        }
    }
    if (ready) timeout_ms = 0;
    if (l && l->instance == INVALID_HANDLE_VALUE && (timeout_ms < 0 || timeout_ms > RETRY_MS)) timeout_ms = RETRY_MS;
    if (at == 0)
        Sleep((DWORD)(timeout_ms < 0 ? 10 : timeout_ms));
    else
        (void)WaitForMultipleObjects(at, events, FALSE, timeout_ms < 0 ? INFINITE : (DWORD)timeout_ms);
}
