/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c: see devices.h. The n-th accelerator is the one with the number n in its name. */
#include "job/devices.h"

#include <ctype.h>
#include <dirent.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX    64
#define RENDER_FIRST 128

struct kind {
    const char *folder, *prefix;
    int first;
};

static const struct kind kinds[] = {{"/dev", "nvidia", 0},
                                    {"/dev", "neuron", 0},
                                    {"/dev/accel", "accel", 0},
                                    {"/dev/dri", "renderD", RENDER_FIRST}};

/* The number of "<prefix><number>", -1 if it is none. */
static int number_of(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length]))
        return -1;
    long number = strtol(name + length, &end, 10);
    return *end == '\0' && number < RENDER_FIRST + COUNT_MAX ? (int)number : -1;
}

static int count_kind(const struct kind *kind)
{
    DIR *list = opendir(kind->folder);
    int count = 0;
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        int number = number_of(entry->d_name, kind->prefix) - kind->first;
        count += number >= 0 && number < COUNT_MAX;
    }
    if (list != NULL)
        closedir(list);
    return count;
}

int devices_count(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int count = count_kind(&kinds[i]);
        if (count > 0)
            return count;
    }
    return 0;
}

static bool has_prefix(const char *name, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++)
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

bool devices_shown(const char *name, uint64_t accelerators)
{
    static const char *const always[] = {"null", "zero", "full", "random", "urandom", "tty", NULL};
    static const char *const accelerated[] = {"nvidia", "kfd",    "dri", "infiniband",
                                              "accel",  "neuron", NULL};
    for (int i = 0; always[i] != NULL; i++)
        if (strcmp(name, always[i]) == 0)
            return true;
    if (!has_prefix(name, accelerated) || accelerators == 0)
        return false;
    int number = number_of(name, "nvidia");
    if (number < 0)
        number = number_of(name, "neuron");
    return number < 0 || (number < COUNT_MAX && (accelerators >> number & 1) != 0);
}
