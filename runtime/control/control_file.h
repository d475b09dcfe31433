/* control_file.h - the 32-byte file: people's scripts write it, a thread of ours looks at it every 40 ms and puts what it
 * says into the box of settings. Compute threads never touch it.
 *
 * The folder may be open to everybody, so the file is taken only if it is ours in every respect (os.h, os_guarded_read); else
 * it is ignored, with one line in the log for each change of the reason. A content is taken when it stood still for some
 * milliseconds, so a writer that is in the middle is not overheard; one that is out of range leaves the settings as they are
 * and is reported once. */
#ifndef RUNTIME_CONTROL_CONTROL_FILE_H
#define RUNTIME_CONTROL_CONTROL_FILE_H

#include "runtime/control/settings.h"

enum { CONTROL_FILE_TICK_MS = 40, CONTROL_FILE_STILL_MS = 8 };

struct control_file_options {
    const char *path; /* NULL: dsv4_moe_cfg.bin in the folder for temporary files */
    struct settings_box *box;
    bool no_thread;            /* somebody calls control_file_look: tests */
    void (*pause)(void *user); /* instead of sleeping CONTROL_FILE_STILL_MS: tests; or NULL */
    void *pause_user;
};

struct control_file_counts {
    uint64_t reads, accepts, rejects; /* looks that found 32 bytes; changes taken; contents and files refused */
};

struct control_file;

/* Begins. With a path, the content of the file is applied; the default file is only written, for a forgotten one must not make
 * results lossy. A missing file is created, only for this user, with the settings in force; the default one
 * also later, for programs of one user share it and the one that made it removes it when it ends. What stands in its place and
 * is not ours is left alone. Errors: MC_ENOMEM, MC_EIO (no thread); never because of the file. */
MC_MUST_CHECK enum mc_code control_file_start(const struct control_file_options *opt, struct control_file **out,
                                              struct mc_err *err);
/* Ends the thread and removes the file if it is the one that was created. NULL does nothing. */
void control_file_stop(struct control_file *f);
const char *control_file_path(const struct control_file *f);
struct control_file_counts control_file_counts_get(const struct control_file *f);
/* One look, as the thread has them. */
void control_file_look(struct control_file *f);

#endif
