/* SPDX-License-Identifier: Apache-2.0 */
/* headroom.c: see headroom.h. */
#include "base/headroom.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"

#define PATH_BYTES 1088
#define KIB        1024

/* Of lines "name number" or "name: number kB": the sum of those with one of both names; -1 if there
 * is none. */
static long long sum_of(const char *path, const char *name, const char *other)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    char line[256], word[64];
    long long number, sum = -1;
    while (fgets(line, sizeof(line), file) != NULL) {
        bool good = sscanf(line, "%63s %lld", word, &number) == 2;
        if (good && (strcmp(word, name) == 0 || strcmp(word, other) == 0))
            sum = (sum < 0 ? 0 : sum) + number;
    }
    fclose(file);
    return sum;
}

static bool read_number(const char *folder, const char *name, long long *out)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return base_cgroup_numbers(path, out, 1) == 1;
}

/* What one control group has left. */
static long long folder_left(const char *folder, int version)
{
    char path[PATH_BYTES];
    long long limit, used;
    bool second = version == 2;
    if (!read_number(folder, second ? "memory.max" : "memory.limit_in_bytes", &limit) ||
        limit < 0 ||
        !read_number(folder, second ? "memory.current" : "memory.usage_in_bytes", &used))
        return LLONG_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    long long cached = second ? sum_of(path, "inactive_file", "active_file")
                              : sum_of(path, "total_inactive_file", "total_active_file");
    long long left = limit - used + (cached > 0 ? cached : 0);
    return left > 0 ? left : 0;
}

int64_t base_headroom_by(const char *list, const char *mount, const char *meminfo)
{
    long long left = base_cgroup_least(list, mount, "memory", folder_left);
    long long available = sum_of(meminfo, "MemAvailable:", "");
    long long swap = sum_of(meminfo, "SwapFree:", "");
    if (available >= 0 && available * KIB < left)
        left = available * KIB;
    if (swap > 0 && left < LLONG_MAX - swap * KIB)
        left += swap * KIB;
    return left;
}

int64_t base_headroom_bytes(void)
{
    return base_headroom_by(BASE_CGROUP_LIST, BASE_CGROUP_MOUNT, "/proc/meminfo");
}
