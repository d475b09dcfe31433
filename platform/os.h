/* os.h - the one header that stands for an operating system.
 *
 * platform/linux and platform/windows implement it under the same file names (os_file.c, os_memory.c, os_region.c, os_thread.c,
 * os_affinity.c, os_clock.c, os_process.c, os_system.c ...). Rules of the seam: UTF-8 paths in, mc_code out, sizes in bytes,
 * times in nanoseconds, no OS type in a signature. */
#ifndef PLATFORM_OS_H
#define PLATFORM_OS_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

/* ---- facts ------------------------------------------------------------------------------------------------------ */

struct os_caps {
    size_t page_bytes;            /* 4096 on every machine we know */
    size_t map_granularity_bytes; /* offset of a mapping must be a multiple: page on Linux, 64 KiB on Windows */
    bool can_advise_hugepages;    /* os_mem_alloc with OS_MEM_HUGE has an effect */
};

void os_caps_get(struct os_caps *caps);

/* ---- files (os_file.c) ------------------------------------------------------------------------------------------ */

struct os_file;

/* Opens a regular file for reading. A directory, pipe, device or missing file is an error naming `path`; opening a pipe
 * never blocks. */
MC_MUST_CHECK enum mc_code os_file_open(const char *path, struct os_file **out, struct mc_err *err);
void os_file_close(struct os_file *f);
uint64_t os_file_size(const struct os_file *f); /* when it was opened */
const char *os_file_path(const struct os_file *f);

/* Reads exactly `size` bytes at `off`, or fails with MC_EIO (a file that has become shorter is named as such).
 * Threads: any, at the same time. */
MC_MUST_CHECK enum mc_code os_file_read_at(struct os_file *f, uint64_t off, void *dst, size_t size, struct mc_err *err);

/* The whole file, read only; the rest of its last page can be read too, nothing behind it. The file may be closed afterwards.
 * If the file shrinks or its disk fails while mapped, touching the lost part reads zeros and makes os_map_damaged true instead
 * of killing the process (Linux: a SIGBUS handler installed by the first os_map_open; Windows keeps mapped files from being
 * cut, so it is always false there). An empty file is MC_EFORMAT.
 */
struct os_map;
MC_MUST_CHECK enum mc_code os_map_open(struct os_file *f, struct os_map **out, struct mc_err *err);
void os_map_close(struct os_map *m);
struct mc_span os_map_bytes(const struct os_map *m);
bool os_map_damaged(const struct os_map *m);
/* Asks the system to bring a part in soon; never fails, never waits. */
void os_map_will_need(const struct os_map *m, uint64_t off, uint64_t size);
/* This part will not be read soon: its pages leave the process (they come back from the file when touched). Never fails. */
void os_map_not_needed(const struct os_map *m, uint64_t off, uint64_t size);
/* The same, and the system's file cache need not keep them either (Windows: the pages only leave the process). */
void os_map_forget(const struct os_map *m, uint64_t off, uint64_t size);

/* ---- reads that leave no copy in the system's file cache (os_read.c, os_ring.c) ----------------------------------- */

/* A second way to the bytes of an open file. Direct: the disk writes into the caller's memory, past the file cache; offset,
 * size and address must then be multiples of OS_READ_ALIGN (Linux asks for 512 or the sector, Windows for the sector). The
 * file may be closed afterwards. Errors: MC_EUNSUPPORTED (the file system has no direct reads), MC_EIO. */
enum { OS_READ_ALIGN = 4096 };
struct os_source;
MC_MUST_CHECK enum mc_code os_source_open(const struct os_file *f, bool direct, struct os_source **out, struct mc_err *err);
void os_source_close(struct os_source *s);
bool os_source_is_direct(const struct os_source *s);
const char *os_source_path(const struct os_source *s);
/* One attempt: the bytes that came, perhaps fewer than asked for; 0: the file ends before `off`; negative: an error number of
 * the system. Threads: any, at the same time. */
int64_t os_source_read(struct os_source *s, uint64_t off, void *dst, size_t size);
/* Is this negative result a reason to ask again? */
bool os_read_again(int64_t result);
/* MC_EIO with a sentence about a result <= 0: what failed, or that the file has become shorter. */
MC_MUST_CHECK enum mc_code os_source_fail(const struct os_source *s, uint64_t off, int64_t result, struct mc_err *err);
/* The file cache need not keep these bytes. Never fails. */
void os_source_forget(struct os_source *s, uint64_t off, size_t size);

/* A queue of reads inside the kernel: io_uring, nothing elsewhere (MC_EUNSUPPORTED, saying why). At most `entries` reads may
 * be in flight. os_ring_read and os_ring_wake may be called by any thread at any time, os_ring_wait by one thread at a time.
 * destroy waits for nothing: take back what is in flight before. */
struct os_ring;
MC_MUST_CHECK enum mc_code os_ring_create(unsigned entries, struct os_ring **out, struct mc_err *err);
void os_ring_destroy(struct os_ring *r);
MC_MUST_CHECK enum mc_code os_ring_read(struct os_ring *r, struct os_source *s, uint64_t off, void *dst, size_t size,
                                        uint64_t tag, struct mc_err *err);
/* Lets os_ring_wait return with the tag OS_RING_WOKEN, if a place is free; else it returns soon of its own accord. */
#define OS_RING_WOKEN UINT64_MAX
void os_ring_wake(struct os_ring *r);
/* Waits for the next read that is done; *result as of os_source_read. */
MC_MUST_CHECK enum mc_code os_ring_wait(struct os_ring *r, uint64_t *tag, int64_t *result, struct mc_err *err);

/* Share of this part of the file that the system's cache holds, 0..1 (of large parts from samples); 0 where the system does not
 * tell. */
double os_map_cached(const struct os_map *m, uint64_t off, uint64_t size);

/* Reads a whole small file (config, prompt, token list) of at most max_bytes; *data is malloc'ed, has a NUL behind its end, and
 * belongs to the caller. "-" is standard input. */
MC_MUST_CHECK enum mc_code os_file_read_all(const char *path, size_t max_bytes, char **data, size_t *size, struct mc_err *err);

/* Writes a file: create, write, finish. Until finish nothing of the name is touched: the bytes go to PATH.part in the same
 * folder (PATH.2.part ... where that is taken), and finish renames it over PATH. So a failed run, a killed process and a reader
 * of the older file all keep the older file; a killed process leaves a .part. abort closes and removes the .part only. A link's
 * target is replaced, not the link (Windows: a link that leads nowhere is); on Linux the new file has the rights of the one
 * that it replaces. What is no regular file, a device or a pipe, is written directly, and so is standard output by whatever
 * name. Refused with MC_EIO naming the path: a directory, an existing file without the right to write it, a folder that takes
 * no new file; a full disk later. Exactly one of finish and abort must be called; both free w. */
struct os_writer;
MC_MUST_CHECK enum mc_code os_writer_create(const char *path, struct os_writer **out, struct mc_err *err);
MC_MUST_CHECK enum mc_code os_writer_write(struct os_writer *w, const void *data, size_t size, struct mc_err *err);
MC_MUST_CHECK enum mc_code os_writer_finish(struct os_writer *w, struct mc_err *err);
void os_writer_abort(struct os_writer *w);
/* Both names lead to one regular file: what must not be read and replaced in one run. */
bool os_file_same(const char *a, const char *b);

/* ---- a small file that other programs of the same user write (os_guarded.c) --------------------------------------
 * For files in folders that everybody may write, such as /tmp. What is at `path` is looked at through an open descriptor, never
 * by name, and is accepted only if it is a regular file (no link is followed; a pipe or device neither blocks nor is read),
 * belongs to the user of this process (Linux: or to root), has one name, is not writable by group or others (Windows: by its
 * owner alone it is judged) and holds `size` to 4096 bytes. */
enum os_guard {
    OS_GUARD_OK,
    OS_GUARD_MISSING,
    OS_GUARD_SHORT, /* right in all else */
    OS_GUARD_LONG,
    OS_GUARD_LINK,
    OS_GUARD_KIND,
    OS_GUARD_OWNER,
    OS_GUARD_MODE,
    OS_GUARD_NAMES,
    OS_GUARD_TAKEN, /* create: the name is there already */
    OS_GUARD_FAILED,
    OS_GUARDS
};
/* Which file it is, and when it was last written. */
struct os_file_id {
    uint64_t device, file, written_ns;
};
/* The first `size` bytes; *id (may be NULL) is filled with OS_GUARD_OK and OS_GUARD_SHORT. */
enum os_guard os_guarded_read(const char *path, void *dst, size_t size, struct os_file_id *id);
/* Creates a file that only this user may read and write; never follows a link, never touches what is there. */
enum os_guard os_guarded_create(const char *path, const void *data, size_t size, struct os_file_id *id);
/* Writes the first bytes of an accepted file (of any length up to 4096) in place. */
enum os_guard os_guarded_overwrite(const char *path, const void *data, size_t size);
/* Removes `path` if it still names this file. */
void os_guarded_remove(const char *path, const struct os_file_id *id);
/* `name` in the folder for temporary files: /tmp, on Windows that of TEMP. False: the path does not fit. */
bool os_temp_path(const char *name, char *buf, size_t cap);

/* ---- talking to other programs of the same user (os_socket.c) ------------------------------------------------------
 * A stream socket with a name in the file system (Linux), a named pipe \\.\pipe\NAME (Windows). Nothing here blocks except
 * os_conn_wait, and nobody but this user (Linux: or root; Windows: or the system) gets through. */
struct os_listener;
struct os_conn;

/* Where this process listens unless the user says otherwise. Linux: PID.sock in the folder modchip/ below XDG_RUNTIME_DIR, or
 * below /run/user/UID, or below HOME/.local/state; it is made if missing, must be ours alone (mode 0700), and what killed
 * programs left there is removed. Windows: \\.\pipe\modchip-PID. Errors: MC_EIO (no such folder can be had), MC_EARG. */
MC_MUST_CHECK enum mc_code os_listener_path(char *buf, size_t cap, struct mc_err *err);
/* The paths of that place behind which somebody may listen, this process's own left out. Makes nothing. */
void os_listener_each(void (*fn)(void *user, const char *path), void *user);

/* Listens at `path`. The socket of a program that was killed is replaced; errors: MC_EBUSY (somebody listens there), MC_EARG
 * (the name is too long, or no name of a pipe), MC_EIO (something else is there, which is left alone; the system says no). */
MC_MUST_CHECK enum mc_code os_listener_open(const char *path, struct os_listener **out, struct mc_err *err);
void os_listener_close(struct os_listener *l); /* what open made is removed; connections are not touched */
/* os_conn_wait returns, now or next time. Threads: any. */
void os_listener_wake(struct os_listener *l);

enum os_caller {
    OS_CALLER_NONE,
    OS_CALLER_OURS,
    OS_CALLER_STRANGER /* another user: closed without a byte */,
    OS_CALLER_FAILED
};
enum os_caller os_listener_accept(struct os_listener *l, struct os_conn **out); /* *out is set with OS_CALLER_OURS */

/* Calls the program that listens at `path`. Errors: MC_EIO (nobody listens; what is there belongs to another user). */
MC_MUST_CHECK enum mc_code os_conn_open(const char *path, struct os_conn **out, struct mc_err *err);
void os_conn_close(struct os_conn *c); /* NULL does nothing; what was written and not yet read can still be read */
/* Bytes read or taken to be written, at most `size`; 0: none at the moment; negative: there will be none any more. */
int64_t os_conn_read(struct os_conn *c, void *buf, size_t size);
int64_t os_conn_write(struct os_conn *c, const void *data, size_t size);

enum { OS_CONNS_MAX = 24, OS_WAIT_FOREVER = -1 };
struct os_conn_wish {
    struct os_conn *conn;
    bool read, write;
};
/* Waits until somebody calls (l may be NULL), a wish may be granted, os_listener_wake was called, or so many milliseconds are
 * over. n <= OS_CONNS_MAX. May return early for no reason: ask all of them afterwards. A signal ends it. */
void os_conn_wait(struct os_listener *l, const struct os_conn_wish *wishes, size_t n, int timeout_ms);

/* ---- memory (os_memory.c) --------------------------------------------------------------------------------------- */

enum os_mem_flags {
    OS_MEM_PLAIN = 0,
    OS_MEM_HUGE = 1 /* ask for large pages where they can be had; never fails for lack of them */
};

/* Zeroed memory, aligned to at least 4096 (2 MiB with OS_MEM_HUGE and size >= 2 MiB); the pages come on first touch.
 * `label` is a literal for the memory report and the error. Of 0 bytes *out is NULL. */
MC_MUST_CHECK enum mc_code os_mem_alloc(size_t size, enum os_mem_flags flags, const char *label, void **out,
                                        struct mc_err *err);
void os_mem_free(void *p, size_t size); /* NULL does nothing */
/* Makes whole pages of such memory inaccessible, so that an access to them ends the process: the fence of the kernel checks. */
MC_MUST_CHECK enum mc_code os_mem_fence(void *p, size_t size, struct mc_err *err);

/* ---- large memory of chosen pages (os_region.c) ------------------------------------------------------------------- */

enum os_page { OS_PAGE_NORMAL, OS_PAGE_THP, OS_PAGE_2M, OS_PAGE_1G, OS_PAGE_KINDS };
const char *os_page_name(enum os_page kind); /* "normal", "thp", "2m", "1g" */

enum os_hugepages {
    OS_HUGE_AUTO, /* 1 GiB, 2 MiB, transparent, normal: the largest that can be had, group of pages by group of pages */
    OS_HUGE_OFF,
    OS_HUGE_THP, /* these three: all of the memory that such pages can cover, or an error that names the remedy */
    OS_HUGE_2M,
    OS_HUGE_1G, /* what is left beyond whole GiB is made of 2 MiB or transparent pages */
    OS_HUGE_WISHES
};

/* One stretch of addresses, zeroed, made of the pages that the wish allows. Pages of a reserved pool are reserved at once, so
 * that nobody takes them away in between; all pages come at the touch, which has to come before any other access: a reserved
 * page that does not arrive after all (limits of a control group, a node without pages) is found out there and replaced by
 * lesser pages instead of killing the process. `label` as in os_mem_alloc. Windows: large pages for all of it when the account
 * holds the right to lock memory and they are there, else normal ones; 1g is refused.
 * Errors: MC_ENOMEM, MC_EUNSUPPORTED (the system has no such pages). */
struct os_region;
MC_MUST_CHECK enum mc_code os_region_create(size_t size, enum os_hugepages wish, const char *label, struct os_region **out,
                                            struct mc_err *err);
void os_region_destroy(struct os_region *r);
uint8_t *os_region_data(const struct os_region *r); /* aligned to 2 MiB from that size on, else to a page */
size_t os_region_size(const struct os_region *r);   /* as asked for */
/* Makes these bytes present. Parts that are present already cost nothing. Threads: any, at the same time.
 * Errors: MC_ENOMEM; under OS_HUGE_2M and OS_HUGE_1G also when such a page does not arrive. */
MC_MUST_CHECK enum mc_code os_region_touch(struct os_region *r, size_t off, size_t size, struct mc_err *err);
/* os_numa_prefer and os_numa_interleave of all of it; to be called before the first touch. */
bool os_region_prefer(struct os_region *r, unsigned node);
bool os_region_interleave(struct os_region *r);
/* What the touched part is made of, in bytes, and why not of larger pages: a clause, empty when there is nothing to say. */
struct os_region_facts {
    uint64_t bytes[OS_PAGE_KINDS];
    char why[240];
};
void os_region_facts_get(struct os_region *r, struct os_region_facts *out);
/* Free pages of the pools that the wish may take; not part of os_memory_available_bytes. */
uint64_t os_huge_pool_free_bytes(enum os_hugepages wish);

/* ---- memory nodes (os_numa.c) ------------------------------------------------------------------------------------- */

/* OS numbers of the nodes that have memory this process may use, ascending; at most cap, returns how many, >= 1 (node 0 where
 * the system does not tell). */
unsigned os_numa_nodes(unsigned *nodes, unsigned cap);
/* Node of the CPU that runs the caller; OS_CPU_NONE: unknown. */
unsigned os_numa_node_here(void);
uint64_t os_numa_free_bytes(unsigned node); /* 0: unknown */
/* Where the pages of this memory shall come from when they are touched: from that node as long as it has any, or from all in
 * turn. Pages that are there already stay. False when the system refuses: then they come from wherever. Windows: always
 * false. */
bool os_numa_prefer(void *p, size_t size, unsigned node);
bool os_numa_interleave(void *p, size_t size);
/* Share of the present pages that are on that node, from samples; 0 where unknown. */
double os_numa_share(const void *p, size_t size, unsigned node);

/* ---- threads (os_thread.c), CPUs (os_affinity.c) ---------------------------------------------------------------- */

struct os_thread;
typedef void (*os_thread_fn)(void *arg);
/* name: at most 15 bytes. */
MC_MUST_CHECK enum mc_code os_thread_start(os_thread_fn fn, void *arg, const char *name, struct os_thread **out,
                                           struct mc_err *err);
void os_thread_join(struct os_thread *t); /* waits and frees */

/* Sleeps while *word == expected; may return early for no reason. Linux futex, Windows WaitOnAddress. */
void os_wait_u32(const _Atomic uint32_t *word, uint32_t expected);
void os_wake_all_u32(const _Atomic uint32_t *word);
/* One turn of a busy wait (pause instruction). */
void os_cpu_relax(void);
void os_thread_yield(void);

/* OS numbers of the CPUs this process may use (affinity and cpuset respected, not sysconf), ascending. To be asked by a thread
 * that is not bound. Writes at most cap entries, returns how many (>= 1). On Windows number = 64 * processor group + index in
 * the group. */
size_t os_cpus_allowed(unsigned *cpus, size_t cap);
/* Binds the calling thread to one CPU. */
MC_MUST_CHECK enum mc_code os_thread_bind(unsigned cpu, struct mc_err *err);
/* The calling thread's CPU set, to be put back after a while of being bound. The bits are the system's own. */
struct os_affinity {
    uint64_t bits[128];
};
void os_thread_affinity_get(struct os_affinity *out);
void os_thread_affinity_set(const struct os_affinity *saved);

/* Facts of one logical CPU. Ids are small numbers, equal where the thing is shared, OS_CPU_NONE where nothing is known. */
#define OS_CPU_NONE 0xffffffffu
struct os_cpu_row {
    unsigned cpu; /* OS number */
    unsigned core, package, node, l3;
    unsigned efficiency;                    /* of hybrid machines: higher is faster; 0 everywhere on others */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* caches above this CPU as they call themselves, unchecked; 0: unknown */
};
/* One row per CPU of the machine, ascending by number; at most cap rows, returns how many, 0 if the system does not tell.
 * Windows only (os_cpu_rows.c): on Linux topology/discover.c asks hwloc, which knows more. */
size_t os_cpu_rows(struct os_cpu_row *rows, size_t cap);
/* CPU time that this process may use, in thousandths of a CPU: the least quota of its control groups, v1 and v2, on every
 * level. 0: no limit (always on Windows: a job's rate control is not asked). */
unsigned os_cpu_quota_milli(void);

/* ---- how this system is set up (os_system.c) -------------------------------------------------------------------------- */

#define OS_NOT_LIMITED UINT64_MAX
struct os_system {
    char governor[32];      /* of the slowest set CPU; empty where the system does not tell */
    unsigned n_slow_cpus;   /* CPUs that can have another governor than "performance" and have it not */
    char transparent[16];   /* transparent huge pages: "always", "madvise", "never"; empty: none in this kernel */
    uint64_t pool_bytes[2]; /* reserved pages of 2 MiB and of 1 GiB, */
    uint64_t pool_free_bytes[2];
    uint64_t memory_bytes;       /* of the machine */
    uint64_t machine_free_bytes; /* of the machine; what this process may take of it: os_memory_available_bytes */
    uint64_t locked_limit_bytes, open_files_limit; /* of this process; OS_NOT_LIMITED */
};
/* Never fails; what cannot be found out is 0 or empty. */
void os_system_get(struct os_system *out);

/* ---- clock, process, console (os_clock.c, os_process.c) --------------------------------------------------------- */

uint64_t os_clock_ns(void); /* monotonic */
uint64_t os_date_ms(void);  /* milliseconds since 1970, UTC */
void os_sleep_ms(unsigned ms);
uint64_t os_rss_peak_bytes(void);
uint64_t os_memory_available_bytes(void);
/* Folder of the running program, without a slash at its end. */
MC_MUST_CHECK enum mc_code os_program_dir(char *buf, size_t cap, struct mc_err *err);
/* Value of an environment variable into buf; UTF-8. False (and an empty buf) if it is unset or does not fit. Only runtime/app
 * calls this. */
bool os_env_get(const char *name, char *buf, size_t cap);
bool os_file_exists(const char *path);
bool os_stderr_is_terminal(void);
bool os_stdin_is_terminal(void);
/* The next byte of standard input, past stdio; OS_BYTE_NONE when none comes in so long a time, OS_BYTE_END at its end. Linux.
 */
enum { OS_BYTE_END = -1, OS_BYTE_NONE = -2 };
int os_stdin_byte(unsigned timeout_ms);
/* Standard streams in binary mode, UTF-8 console, SIGPIPE and SIGXFSZ ignored. Called first thing in main. */
void os_console_setup(void);
/* main's arguments as UTF-8 (Windows: from the wide command line; Linux: what main got). */
void os_args_utf8(int *argc, char ***argv);
/* After the first Ctrl-C os_interrupted becomes true; the second one ends the process with code 130. Calling it again forgets
 * the first one. Linux: SIGTERM and SIGHUP are caught as well; they make both of these true, for good. */
void os_interrupt_catch(void);
bool os_interrupted(void);
bool os_terminated(void);
/* As if SIGTERM had come; a read of standard input by the main thread ends. Done twice, the process ends. Threads: any, once
 * os_interrupt_catch was called. */
void os_terminate(void);
unsigned long os_process_id(void);
/* A folder for what may be lost: modchip/ below XDG_CACHE_HOME or HOME/.cache; on Windows below LOCALAPPDATA. Made if missing.
 * Errors: MC_EIO. */
MC_MUST_CHECK enum mc_code os_cache_folder(char *buf, size_t cap, struct mc_err *err);

#endif
