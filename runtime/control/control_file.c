/* control_file.c - see control_file.h. */
#include "runtime/control/control_file.h"

#include "platform/base/log.h"
#include "platform/os.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, SHORT_MS = 2000 /* so long a file may be too short without a word */ };

struct control_file {
    struct control_file_options opt;
    struct os_thread *thread;
    _Atomic uint32_t stop;
    _Atomic uint64_t reads, accepts, rejects;
    bool created;
    struct os_file_id own;             /* of the file that was created */
    uint8_t seen[SETTINGS_WIRE_BYTES]; /* the content that was taken, written or refused last */
    enum os_guard reason;              /* that was reported last */
    uint64_t short_since_ns;           /* 0: it is not */
    char path[PATH_BYTES];
};

static const char *const reasons[OS_GUARDS] = {
    [OS_GUARD_OK] = "is fine",
    [OS_GUARD_MISSING] = "is not there",
    [OS_GUARD_SHORT] = "is shorter than 32 bytes",
    [OS_GUARD_LONG] = "is longer than 4096 bytes",
    [OS_GUARD_LINK] = "is a link",
    [OS_GUARD_KIND] = "is no regular file",
    [OS_GUARD_OWNER] = "belongs to another user, or its rights keep this one out",
    [OS_GUARD_MODE] = "may be written by others (mode 0600 is expected)",
    [OS_GUARD_NAMES] = "has a second name",
    [OS_GUARD_TAKEN] = "is taken by something else",
    [OS_GUARD_FAILED] = "cannot be opened or created",
};

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* One line for each change of what is wrong with the file. */
static void report(struct control_file *f, enum os_guard reason)
{
    if (reason == f->reason) return;
    f->reason = reason;
    if (reason == OS_GUARD_OK || reason == OS_GUARD_MISSING) return;
    count(&f->rejects);
    mc_log(MC_LOG_WARN, "control: %s %s: it is ignored, the settings stay", f->path, reasons[reason]);
}

static void pause_reading(const struct control_file *f)
{
    if (f->opt.pause)
        f->opt.pause(f->opt.pause_user);
    else
        os_sleep_ms(CONTROL_FILE_STILL_MS);
}

static void take(struct control_file *f, const uint8_t wire[SETTINGS_WIRE_BYTES])
{
    const struct settings_limits *limits = settings_box_limits(f->opt.box);
    struct settings_state now;
    struct moe_settings s;
    struct settings_fault fault;
    char text[200], note[200] = "";
    memcpy(f->seen, wire, SETTINGS_WIRE_BYTES);
    settings_box_get(f->opt.box, &now);
    if (!settings_from_wire(wire, limits, now.settings.scope, &s, &fault)) {
        count(&f->rejects);
        mc_log(MC_LOG_WARN, "control: %s field %d, %s: %s; the settings stay", f->path, fault.field, fault.key, fault.text);
        return;
    }
    const uint32_t generation = settings_box_set(f->opt.box, &s, SETTINGS_FILE, 0);
    count(&f->accepts);
    settings_describe(&s, limits, text, sizeof text);
    const bool noted = settings_box_note(f->opt.box, &s, note, sizeof note);
    mc_log(settings_lossy(&s, limits) ? MC_LOG_WARN : MC_LOG_INFO,
           "control: settings generation=%u source=file lossy=%d: %s%s%s", (unsigned)generation, settings_lossy(&s, limits),
           text, noted ? "; " : "", note);
}

/* Creates the file with the settings in force. */
static enum os_guard create(struct control_file *f)
{
    struct settings_state now;
    settings_box_get(f->opt.box, &now);
    settings_to_wire(&now.settings, f->seen);
    const enum os_guard g = os_guarded_create(f->path, f->seen, sizeof f->seen, &f->own);
    f->created = !g;
    return g;
}

void control_file_look(struct control_file *f)
{
    uint8_t wire[SETTINGS_WIRE_BYTES], again[SETTINGS_WIRE_BYTES];
    struct os_file_id id, id_again;
    const enum os_guard g = os_guarded_read(f->path, wire, sizeof wire, &id);
    if (g == OS_GUARD_SHORT) {
        if (!f->short_since_ns) f->short_since_ns = os_clock_ns();
        if (os_clock_ns() - f->short_since_ns >= (uint64_t)SHORT_MS * 1000000) report(f, g);
        return;
    }
    f->short_since_ns = 0;
    if (g == OS_GUARD_MISSING && !f->opt.path) { /* another program of ours made it and has ended: it is ours from now on */
        create(f);
        return;
    }
    report(f, g);
    if (g) return;
    count(&f->reads);
    if (!memcmp(wire, f->seen, sizeof wire)) return;
    /* A write that changes nothing yet shows in the time of the file, so the time has to stand still as well. */
    pause_reading(f);
    if (os_guarded_read(f->path, again, sizeof again, &id_again)) return; /* the next look tells why */
    if (!memcmp(wire, again, sizeof wire) && !memcmp(&id, &id_again, sizeof id)) take(f, wire);
}

static void watch(void *arg)
{
    struct control_file *f = arg;
    while (!atomic_load(&f->stop)) {
        control_file_look(f);
        os_sleep_ms(CONTROL_FILE_TICK_MS);
    }
}

/* What stands at the path when we come. */
static void begin(struct control_file *f)
{
    struct settings_state now;
    uint8_t wire[SETTINGS_WIRE_BYTES];
    settings_box_get(f->opt.box, &now);
    settings_to_wire(&now.settings, f->seen);
    enum os_guard g = os_guarded_read(f->path, wire, sizeof wire, NULL);
    if (g == OS_GUARD_MISSING) {
        g = create(f);
        if (g == OS_GUARD_MISSING) g = OS_GUARD_FAILED; /* its folder is not there */
    } else if ((g == OS_GUARD_OK || g == OS_GUARD_SHORT) && !f->opt.path) {
        g = os_guarded_overwrite(f->path, f->seen, sizeof f->seen);
    } else if (g == OS_GUARD_OK) {
        memset(f->seen, 0xFF, sizeof f->seen); /* out of range, so whatever is there is new; a writer may be at it already */
        control_file_look(f);
        return;
    }
    report(f, g);
}

enum mc_code control_file_start(const struct control_file_options *opt, struct control_file **out, struct mc_err *err)
{
    struct control_file *f = calloc(1, sizeof *f);
    if (!f) return mc_fail(err, MC_ENOMEM, 0, "no memory for the control file");
    f->opt = *opt;
    const size_t n = opt->path ? strlen(opt->path) : 0;
    if (opt->path && n < sizeof f->path) memcpy(f->path, opt->path, n + 1);
    if (opt->path ? n >= sizeof f->path : !os_temp_path("dsv4_moe_cfg.bin", f->path, sizeof f->path)) {
        free(f);
        return mc_fail(err, MC_EARG, 0, "the path of --moe-cfg is longer than %d bytes", PATH_BYTES - 1);
    }
    begin(f);
    const enum mc_code code = opt->no_thread ? MC_OK : os_thread_start(watch, f, "moe-cfg", &f->thread, err);
    if (code) {
        control_file_stop(f);
        return code;
    }
    *out = f;
    return MC_OK;
}

void control_file_stop(struct control_file *f)
{
    if (!f) return;
    atomic_store(&f->stop, 1);
    os_thread_join(f->thread);
    if (f->created) os_guarded_remove(f->path, &f->own);
    free(f);
}

const char *control_file_path(const struct control_file *f)
{
    return f->path;
}

struct control_file_counts control_file_counts_get(const struct control_file *f)
{
    return (struct control_file_counts){atomic_load_explicit(&f->reads, memory_order_relaxed),
                                        atomic_load_explicit(&f->accepts, memory_order_relaxed),
                                        atomic_load_explicit(&f->rejects, memory_order_relaxed)};
}
