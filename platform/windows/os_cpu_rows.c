/* os_cpu_rows.c - what GetLogicalProcessorInformationEx knows, turned into one row per logical CPU.
 *
 * The answer is a run of records: relationship u32, size u32, then by relationship
 *   core 0, package 3:  flags u8, efficiency u8, 20 bytes, group count u16, masks from byte 32
 *   node 1:             number u32, 18 bytes, group count u16, masks from byte 32
 *   cache 2:            level u8, ways u8, line u16, size u32, type u32 (1: instructions), ..., group count u16, masks from 40
 * A mask is bits u64, group u16, 6 bytes; an object of more than 64 CPUs has several. Old systems leave the group count of
 * nodes and caches at 0 and mean one. It is read as bytes, because mingw-w64's headers lack half of the fields, and so
 * that captured answers of other machines can be tested. */
#include "platform/windows/os_windows.h"

#include <stdlib.h>
#include <windows.h>

enum {
    RELATION_CORE = 0,
    RELATION_NODE = 1,
    RELATION_CACHE = 2,
    RELATION_PACKAGE = 3,
    HEAD_BYTES = 8,
    MASK_BYTES = 16,
    CACHE_INSTRUCTIONS = 1
};

/* The masks of one record. */
struct masks {
    const uint8_t *at;
    size_t n;
};

/* The next record at *off as a span; false at the end or where the sizes stop making sense. */
static bool next_record(struct mc_span answer, size_t *off, struct mc_span *record)
{
    if (answer.size - *off < HEAD_BYTES) return false;
    const uint32_t size = mc_load_u32(answer.data + *off + 4);
    if (size < HEAD_BYTES || size > answer.size - *off) return false;
    *record = (struct mc_span){answer.data + *off, size};
    *off += size;
    return true;
}

static struct masks record_masks(struct mc_span record)
{
    const size_t at = mc_load_u32(record.data) == RELATION_CACHE ? 40 : 32;
    struct masks m = {NULL, 0};
    if (record.size < at) return m;
    const size_t count = mc_load_u16(record.data + at - 2), room = (record.size - at) / MASK_BYTES;
    m.at = record.data + at;
    m.n = count == 0 ? 1 : count;
    if (m.n > room) m.n = room;
    return m;
}

static int by_cpu(const void *a, const void *b)
{
    const unsigned x = ((const struct os_cpu_row *)a)->cpu, y = ((const struct os_cpu_row *)b)->cpu;
    return (x > y) - (x < y);
}

/* Every CPU of a core record becomes a row. */
static size_t add_core(struct mc_span record, unsigned core, struct os_cpu_row *rows, size_t n, size_t cap)
{
    const struct masks m = record_masks(record);
    for (size_t k = 0; k < m.n; k++) {
        const uint64_t bits = mc_load_u64(m.at + k * MASK_BYTES);
        const unsigned group = mc_load_u16(m.at + k * MASK_BYTES + 8);
        for (unsigned i = 0; i < 64 && n < cap; i++)
            if (bits >> i & 1)
                rows[n++] = (struct os_cpu_row){.cpu = group * 64 + i,
                                                .core = core,
                                                .package = OS_CPU_NONE,
                                                .node = OS_CPU_NONE,
                                                .l3 = OS_CPU_NONE,
                                                .efficiency = record.data[9]};
    }
    return n;
}

static bool mask_has(struct masks m, unsigned cpu)
{
    for (size_t k = 0; k < m.n; k++)
        if (mc_load_u16(m.at + k * MASK_BYTES + 8) == cpu / 64 && mc_load_u64(m.at + k * MASK_BYTES) >> cpu % 64 & 1)
            return true;
    return false;
}

/* Sizes of the caches above a CPU; an L3 also says which CPUs share it. */
static void add_cache(struct mc_span record, struct os_cpu_row *row)
{
    const unsigned level = record.data[8];
    const uint64_t bytes = mc_load_u32(record.data + 12);
    if (mc_load_u32(record.data + 16) == CACHE_INSTRUCTIONS) return;
    if (level == 1) row->l1d_bytes = bytes;
    if (level == 2) row->l2_bytes = bytes;
    if (level == 3) row->l3_bytes = bytes;
}

size_t windows_cpu_rows_parse(struct mc_span answer, struct os_cpu_row *rows, size_t cap)
{
    struct mc_span record;
    size_t n = 0;
    unsigned n_cores = 0, n_packages = 0, n_l3 = 0;
    for (size_t off = 0; next_record(answer, &off, &record);)
        if (mc_load_u32(record.data) == RELATION_CORE) n = add_core(record, n_cores++, rows, n, cap);
    qsort(rows, n, sizeof *rows, by_cpu);
    for (size_t off = 0; next_record(answer, &off, &record);) {
        const uint32_t relation = mc_load_u32(record.data);
        const struct masks m = record_masks(record);
        const bool is_cache = relation == RELATION_CACHE, is_l3 = is_cache && m.n > 0 && record.data[8] == 3;
        if (m.n == 0 || (relation != RELATION_NODE && relation != RELATION_PACKAGE && !is_cache)) continue;
        const unsigned id = relation == RELATION_NODE ? mc_load_u32(record.data + 8) : is_l3 ? n_l3++ : n_packages;
        n_packages += relation == RELATION_PACKAGE;
        for (size_t i = 0; i < n; i++) {
            if (!mask_has(m, rows[i].cpu)) continue;
            if (is_cache) add_cache(record, &rows[i]);
            if (is_l3) rows[i].l3 = id;
            if (relation == RELATION_NODE) rows[i].node = id;
            if (relation == RELATION_PACKAGE) rows[i].package = id;
        }
    }
    return n;
}

size_t os_cpu_rows(struct os_cpu_row *rows, size_t cap)
{
    DWORD size = 0;
    if (GetLogicalProcessorInformationEx(RelationAll, NULL, &size) || GetLastError() != ERROR_INSUFFICIENT_BUFFER) return 0;
    uint8_t *const answer = malloc(size);
    size_t n = 0;
    if (answer && GetLogicalProcessorInformationEx(RelationAll, (void *)answer, &size))
        n = windows_cpu_rows_parse((struct mc_span){answer, size}, rows, cap);
    free(answer);
    return n;
}
