/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c: see cgroup.h. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024

int base_cgroup_numbers(const char *path, long long *numbers, int count)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int found = 0;
    char word[64];
    while (found < count && fscanf(file, "%63s", word) == 1) {
        if (sscanf(word, "%lld", &numbers[found]) != 1)
            numbers[found] = -1;
        found++;
    }
    fclose(file);
    return found;
}

/* The group's folder and all above it, up to the mount. Folders that this process cannot see (a
 * container's mount shows less) count as without a limit. */
static long long tree_least(const char *mount, const char *group, int version,
                            base_cgroup_reader reader)
{
    char folder[PATH_BYTES];
    int mount_bytes = snprintf(folder, sizeof(folder), "%s", mount);
    if (mount_bytes >= PATH_BYTES)
        return LLONG_MAX;
    snprintf(folder + mount_bytes, sizeof(folder) - (size_t)mount_bytes, "%s", group);
    long long least = LLONG_MAX;
    while (strlen(folder) >= (size_t)mount_bytes) {
        long long found = reader(folder, version);
        least = found < least ? found : least;
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return least;
}

/* Whether a comma-separated list has the word. */
static int list_has(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
            return 1;
    }
    return 0;
}

/* What a line of the list, "number:controllers:path", leads to. */
static long long line_least(char *line, const char *mount, const char *controller,
                            base_cgroup_reader reader)
{
    char hierarchy[2 * PATH_BYTES]; /* cut: then it is nowhere */
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return LLONG_MAX;
    controllers++;
    *group++ = '\0';
    if (controllers[0] == '\0')
        return tree_least(mount, group, 2, reader);
    if (!list_has(controllers, controller))
        return LLONG_MAX;
    snprintf(hierarchy, sizeof(hierarchy), "%s/%s", mount, controller);
    return tree_least(hierarchy, group, 1, reader);
}

long long base_cgroup_least(const char *list, const char *mount, const char *controller,
                            base_cgroup_reader reader)
{
    FILE *file = fopen(list, "re");
    if (file == NULL)
        return LLONG_MAX;
    char line[PATH_BYTES];
    long long least = LLONG_MAX;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        long long found = line_least(line, mount, controller, reader);
        least = found < least ? found : least;
    }
    fclose(file);
    return least;
}
