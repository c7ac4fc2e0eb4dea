/* SPDX-License-Identifier: Apache-2.0 */
/* holdings.c: see holdings.h. */
#include "support/holdings.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION_NAME "/memfd:shoal-" /* peers' regions have no descriptor here */
#define LEAVE_MS    10000

/* The thread sanitizer keeps a thread of its own from the first one on that a process makes. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZER_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_THREADS 1
#endif
#endif
#ifndef SANITIZER_THREADS
#define SANITIZER_THREADS 0
#endif

/* Entries of a folder but for "." and ".."; -1 without it. */
static int entries(const char *path)
{
    int count = -2;
    DIR *folder = opendir(path);
    if (!folder)
        return -1;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

int open_descriptors(void)
{
    return entries("/proc/self/fd") - 1; /* the folder's own */
}

int running_threads(void)
{
    return entries("/proc/self/task");
}

int threads_left(int expected)
{
    int count = running_threads();
    for (int tries = 0; count > expected + SANITIZER_THREADS && tries < LEAVE_MS; tries++) {
        poll(NULL, 0, 1);
        count = running_threads();
    }
    return count > expected ? count - SANITIZER_THREADS : count;
}

int descriptors_left(int expected)
{
    int count = open_descriptors();
    for (int tries = 0; count > expected && tries < LEAVE_MS; tries++) {
        poll(NULL, 0, 1);
        count = open_descriptors();
    }
    return count;
}

int64_t shared_bytes_taken(void)
{
    int64_t bytes = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char target[sizeof(REGION_NAME)] = "";
        struct stat file;
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strcmp(target, REGION_NAME) == 0 &&
            fstatat(dirfd(folder), entry->d_name, &file, 0) == 0)
            bytes += file.st_blocks * 512;
    }
    closedir(folder);
    return bytes;
}
