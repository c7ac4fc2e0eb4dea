/* SPDX-License-Identifier: Apache-2.0 */
/*
 * footprint.c: see footprint.h. Shared regions are known by the name that memfd_create gave them;
 * only its owner keeps a region's descriptor, and the file's blocks are the pages that were taken,
 * by whomever.
 */
#include "footprint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION_NAME "/memfd:shoal-"
#define BLOCK_BYTES 512
#define LINE_BYTES  512

/* "Name:   123 kB" of a file of the kernel's, or "Name:  123"; 0 without such a line. */
static uint64_t read_field(const char *path, const char *name)
{
    char line[LINE_BYTES];
    uint64_t value = 0;
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            sscanf(line + length + 1, "%" SCNu64, &value);
    if (file != NULL)
        fclose(file);
    return value;
}

static uint64_t read_mapped_bytes(void)
{
    char line[LINE_BYTES];
    uint64_t bytes = 0, start, end;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strstr(line, REGION_NAME) != NULL &&
            sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2)
            bytes += end - start;
    if (file != NULL)
        fclose(file);
    return bytes;
}

static void read_descriptors(struct footprint *out)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char target[sizeof(REGION_NAME)] = "";
        struct stat file;
        if (entry->d_name[0] == '.')
            continue;
        out->descriptors++;
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strcmp(target, REGION_NAME) == 0 &&
            fstatat(dirfd(folder), entry->d_name, &file, 0) == 0)
            out->shared_bytes += (uint64_t)file.st_blocks * BLOCK_BYTES;
    }
    closedir(folder);
    out->descriptors--; /* the folder's own */
}

void footprint_read(struct footprint *out)
{
    *out = (struct footprint){.mapped_bytes = read_mapped_bytes()};
    out->private_bytes = read_field("/proc/self/smaps_rollup", "Anonymous") << 10;
    out->page_table_bytes = read_field("/proc/self/status", "VmPTE") << 10;
    out->threads = (int64_t)read_field("/proc/self/status", "Threads");
    read_descriptors(out);
}
