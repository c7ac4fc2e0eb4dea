/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.c: instances.conf, and arithmetic with what a machine has.
 *
 * All amounts are whole numbers, and parts of the machine are rounded down, so that what is divided
 * into n parts holds n of them.
 */
#include "job/types.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/wait.h"
#include "job/devices.h"
#include "job/rows.h"

#define PATH_BYTES  1088
#define NUMBER_MAX  1e15
#define PARTS_MAX   1000
#define THOUSAND    1000
#define AMOUNT_TEXT "a number, a part such as 1/4, or all"

static const char default_rows[] = "*\n";

/* An amount of a row: `number` of units, or `number` of `parts` of the machine's. */
struct amount {
    bool given;
    double number;
    int parts; /* 0: units */
};

struct type {
    struct amount cores, memory, accelerators;
};

struct job_types {
    struct rows *rows;
    struct type *types; /* of each row */
};

/* ---- the machine ---- */

static long long folder_limit(const char *folder, int version)
{
    char path[PATH_BYTES];
    long long limit;
    snprintf(path, sizeof(path), "%s/%s", folder,
             version == 2 ? "memory.max" : "memory.limit_in_bytes");
    return base_cgroup_numbers(path, &limit, 1) == 1 && limit >= 0 ? limit : LLONG_MAX;
}

static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
    long long limit =
        base_cgroup_least(BASE_CGROUP_LIST, BASE_CGROUP_MOUNT, "memory", folder_limit);
    return bytes < (uint64_t)limit ? bytes : (uint64_t)limit;
}

void job_machine_look(struct job_share *out)
{
    *out = (struct job_share){.core_thousands = (uint64_t)base_cores_granted() * THOUSAND,
                              .memory_bytes = memory_bytes(),
                              .accelerator_count = devices_count()};
}

/* ---- rows ---- */

/* "8G" has a unit, "0.5" none; what stands behind the number is left in *rest. */
static bool read_decimal(const char *text, double *out, const char **rest)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    *out = strtod(text, &end);
    *rest = end;
    return end != text && *out <= NUMBER_MAX;
}

static bool read_part(const char *rest, struct amount *out)
{
    char *end;
    long parts = strtol(rest, &end, 10);
    if (!isdigit((unsigned char)*rest) || *end != '\0' || parts < 1 || parts > PARTS_MAX ||
        out->number > (double)parts)
        return false;
    out->parts = (int)parts;
    return true;
}

static bool read_unit(const char *rest, double *number)
{
    static const char units[] = "KMGT";
    const char *unit = *rest != '\0' ? strchr(units, *rest) : NULL;
    if (unit != NULL) {
        for (const char *step = units; step <= unit; step++)
            *number *= 1024;
        rest++;
    }
    return *rest == '\0' && *number <= NUMBER_MAX;
}

static bool read_amount(const char *text, bool is_memory, struct amount *out)
{
    const char *rest = NULL;
    *out = (struct amount){.given = true, .number = 1, .parts = 1};
    if (strcmp(text, "all") == 0)
        return true;
    out->parts = 0;
    if (!read_decimal(text, &out->number, &rest))
        return false;
    if (*rest == '/')
        return read_part(rest + 1, out);
    return is_memory ? read_unit(rest, &out->number) : *rest == '\0';
}

static enum shoal_status read_word(const struct rows *rows, const struct rows_row *row,
                                   const char *word, struct type *type)
{
    if (strncmp(word, "cores=", 6) == 0) {
        if (!read_amount(word + 6, false, &type->cores) || type->cores.number == 0)
            return rows_wrong(rows, row, "'%.60s': cores are " AMOUNT_TEXT, word);
    } else if (strncmp(word, "memory=", 7) == 0) {
        if (!read_amount(word + 7, true, &type->memory) || type->memory.number == 0)
            return rows_wrong(rows, row, "'%.60s': memory is " AMOUNT_TEXT " (8G, 512M)", word);
    } else if (strncmp(word, "accelerators=", 13) == 0) {
        if (!read_amount(word + 13, false, &type->accelerators))
            return rows_wrong(rows, row, "'%.60s': accelerators are " AMOUNT_TEXT, word);
    } else {
        return rows_wrong(rows, row, "'%.60s' is not cores=, memory= or accelerators=", word);
    }
    return SHOAL_OK;
}

static enum shoal_status read_rows(struct job_types *types)
{
    size_t count = rows_count(types->rows);
    TRY(BASE_NEW_ARRAY(&types->types, count + 1, "types of instances"));
    for (size_t i = 0; i < count; i++) {
        const struct rows_row *row = rows_at(types->rows, i);
        for (size_t k = 0; k < row->word_count; k++)
            TRY(read_word(types->rows, row, row->words[k], &types->types[i]));
    }
    return SHOAL_OK;
}

enum shoal_status job_types_load(const char *path, struct job_types **out)
{
    struct job_types *types;
    TRY(BASE_NEW(&types, "types of instances"));
    enum shoal_status status = rows_load(path, default_rows, &types->rows);
    if (status == SHOAL_OK)
        status = read_rows(types);
    if (status != SHOAL_OK) {
        job_types_free(types);
        return status;
    }
    *out = types;
    return SHOAL_OK;
}

void job_types_free(struct job_types *types)
{
    if (types == NULL)
        return;
    rows_free(types->rows);
    base_free(types->types);
    base_free(types);
}

/* ---- what a job needs ---- */

static uint64_t amount_of(const struct amount *amount, uint64_t machine, double unit)
{
    if (amount->parts == 0)
        return (uint64_t)(amount->number * unit);
    return (uint64_t)((double)machine / amount->parts * amount->number);
}

static bool has_family(const char *type, const char *family)
{
    size_t length = strlen(family);
    return strncmp(type, family, length) == 0 && isdigit((unsigned char)type[length]);
}

/* Whether instances of a type have accelerators where there are any, by its name. */
static bool is_accelerated(const char *type)
{
    static const char *const families[] = {"p", "g", "gr", "trn", "inf", "dl"};
    if (strcmp(type, "local_gpu") == 0)
        return true;
    if (strncmp(type, "ml.", 3) == 0)
        type += 3;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (has_family(type, families[i]))
            return true;
    return false;
}

/* What is divided in a job by the default: instances of all types, and of those with accelerators.
 */
struct divisors {
    int instances, accelerated;
};

static void set_share(const struct type *type, const char *name, const struct divisors *divisors,
                      const struct job_share *machine, struct job_share *out)
{
    uint64_t shares =
        (uint64_t)(divisors->instances > JOB_TYPES_SHARES ? divisors->instances : JOB_TYPES_SHARES);
    int accelerators = is_accelerated(name) && divisors->accelerated > 0
                           ? machine->accelerator_count / divisors->accelerated
                           : 0;
    *out = (struct job_share){.core_thousands = machine->core_thousands / shares,
                              .memory_bytes = machine->memory_bytes / shares,
                              .accelerator_count = accelerators,
                              .cores_limited = type->cores.given,
                              .memory_limited = type->memory.given};
    if (type->cores.given)
        out->core_thousands = amount_of(&type->cores, machine->core_thousands, THOUSAND);
    if (type->memory.given)
        out->memory_bytes = amount_of(&type->memory, machine->memory_bytes, 1);
    if (type->accelerators.given)
        out->accelerator_count =
            (int)amount_of(&type->accelerators, (uint64_t)machine->accelerator_count, 1);
}

static void add_shares(struct job_share *all, const struct job_share *each, int count)
{
    all->core_thousands += each->core_thousands * (uint64_t)count;
    all->memory_bytes += each->memory_bytes * (uint64_t)count;
    all->accelerator_count += each->accelerator_count * count;
}

static enum shoal_status never_fits(const char *what, double needed, double there)
{
    return base_error(
        SHOAL_ERR_LIMIT,
        "the job's instances need %.10g %s, and this machine has %.10g: ask for fewer "
        "or smaller instances, or give them less in instances.conf",
        needed, what, there);
}

static enum shoal_status check_fits(const struct job_share *all, const struct job_share *machine)
{
    double gib = 1024.0 * 1024 * 1024;
    if (all->accelerator_count > machine->accelerator_count)
        return never_fits("accelerators", all->accelerator_count, machine->accelerator_count);
    if (all->core_thousands > machine->core_thousands)
        return never_fits("cores", (double)all->core_thousands / THOUSAND,
                          (double)machine->core_thousands / THOUSAND);
    if (all->memory_bytes > machine->memory_bytes)
        return never_fits("GiB of memory", (double)all->memory_bytes / gib,
                          (double)machine->memory_bytes / gib);
    return SHOAL_OK;
}

static enum shoal_status find_type(const struct job_types *types, const char *name,
                                   const struct type **out)
{
    const struct rows_row *row = rows_find(types->rows, name);
    if (row == NULL)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "there are no instances of type '%.100s' here: no row of %s matches it",
                          name, rows_source(types->rows));
    *out = &types->types[row - rows_at(types->rows, 0)];
    return SHOAL_OK;
}

enum shoal_status job_types_need(const struct job_types *types, const struct job_share *machine,
                                 const struct job_group *groups, int group_count,
                                 struct job_need *out)
{
    struct job_need need = {.group_count = group_count};
    struct divisors divisors = {0, 0};
    const struct type *found[JOB_GROUPS_MAX];
    if (group_count < 1 || group_count > JOB_GROUPS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "a job has 1 to 5 groups of instances, not %d",
                          group_count);
    for (int i = 0; i < group_count; i++) {
        TRY(find_type(types, groups[i].type, &found[i]));
        divisors.instances += groups[i].count;
        if (is_accelerated(groups[i].type))
            divisors.accelerated += groups[i].count;
    }
    for (int i = 0; i < group_count; i++) {
        need.counts[i] = groups[i].count;
        set_share(found[i], groups[i].type, &divisors, machine, &need.each[i]);
        add_shares(&need.all, &need.each[i], groups[i].count);
    }
    TRY(check_fits(&need.all, machine));
    *out = need;
    return SHOAL_OK;
}

/* ---- what is taken ---- */

static int count_bits(uint64_t bits)
{
    return __builtin_popcountll(bits);
}

/* The lowest `count` bits of those that are set. */
static uint64_t lowest_bits(uint64_t bits, int count)
{
    uint64_t lowest = 0;
    for (; count > 0 && bits != 0; count--) {
        uint64_t bit = bits & -bits;
        lowest |= bit;
        bits ^= bit;
    }
    return lowest;
}

static uint64_t free_accelerators(const struct job_capacity *capacity)
{
    int count = capacity->machine.accelerator_count;
    uint64_t all = count >= JOB_ACCELERATORS_MAX ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    return all & ~capacity->accelerators;
}

static bool has_room(uint64_t machine, uint64_t taken, uint64_t needed)
{
    return taken <= machine && needed <= machine - taken;
}

bool job_capacity_take(struct job_capacity *capacity, const struct job_need *need,
                       uint64_t *accelerators)
{
    uint64_t free = free_accelerators(capacity);
    if (!has_room(capacity->machine.core_thousands, capacity->core_thousands,
                  need->all.core_thousands) ||
        !has_room(capacity->machine.memory_bytes, capacity->memory_bytes, need->all.memory_bytes) ||
        count_bits(free) < need->all.accelerator_count)
        return false;
    *accelerators = lowest_bits(free, need->all.accelerator_count);
    job_capacity_retake(capacity, need, *accelerators);
    return true;
}

void job_capacity_retake(struct job_capacity *capacity, const struct job_need *need,
                         uint64_t accelerators)
{
    capacity->core_thousands += need->all.core_thousands;
    capacity->memory_bytes += need->all.memory_bytes;
    capacity->accelerators |= accelerators;
}

static uint64_t less(uint64_t from, uint64_t amount)
{
    return from > amount ? from - amount : 0;
}

void job_capacity_give(struct job_capacity *capacity, const struct job_need *need,
                       uint64_t accelerators)
{
    capacity->core_thousands = less(capacity->core_thousands, need->all.core_thousands);
    capacity->memory_bytes = less(capacity->memory_bytes, need->all.memory_bytes);
    capacity->accelerators &= ~accelerators;
}

int job_need_group(const struct job_need *need, int instance)
{
    int group = 0;
    while (group < need->group_count - 1 && instance >= need->counts[group])
        instance -= need->counts[group++];
    return group;
}

uint64_t job_need_accelerators(const struct job_need *need, uint64_t accelerators, int instance)
{
    for (int i = 0; i < instance; i++)
        accelerators &=
            ~lowest_bits(accelerators, need->each[job_need_group(need, i)].accelerator_count);
    return lowest_bits(accelerators, need->each[job_need_group(need, instance)].accelerator_count);
}
