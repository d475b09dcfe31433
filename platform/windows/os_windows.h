/* os_windows.h - what the files of this folder share with each other (and with their tests) and nobody else. */
#ifndef PLATFORM_WINDOWS_OS_WINDOWS_H
#define PLATFORM_WINDOWS_OS_WINDOWS_H

#include "platform/os.h"

/* Handle (a HANDLE) of an open file; stays the file's. */
void *windows_file_handle(const struct os_file *f);

/* Rows out of an answer of GetLogicalProcessorInformationEx(RelationAll), 64-bit layout; see os_cpu_rows. Unknown records
 * are stepped over, a record that does not fit ends the reading. Rows come ascending by CPU number, every CPU allowed. */
size_t windows_cpu_rows_parse(struct mc_span answer, struct os_cpu_row *rows, size_t cap);

#endif
