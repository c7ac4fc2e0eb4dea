/* SPDX-License-Identifier: Apache-2.0 */
/* survey.c: is the program there, and can it be executed? */
#include "launch/survey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "launch/process.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* 0, or the errno that execve would give. */
static int executable_look(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return errno;
    if (!S_ISREG(found.st_mode))
        return S_ISDIR(found.st_mode) ? EISDIR : EACCES;
    return access(path, X_OK) == 0 ? 0 : errno;
}

static enum shoal_status refuse(const char *name, int error_number, int *exit_code)
{
    bool missing = error_number == ENOENT || error_number == ENOTDIR;
    *exit_code = missing ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE;
    return base_error_errno(SHOAL_ERR_ARGUMENT, error_number, "program %s cannot be executed",
                            name);
}

/* path = directory/name unless name is absolute. */
static void path_join(const char *directory, const char *name, char *path, size_t capacity)
{
    if (name[0] == '/' || *directory == '\0')
        snprintf(path, capacity, "%s", name);
    else
        snprintf(path, capacity, "%s/%s", directory, name);
}

static enum shoal_status search(const char *directory, const char *name, const char *search_path,
                                char *path, size_t capacity, int *exit_code)
{
    int worst = 0;
    const char *next = search_path;
    for (bool more = true; more;) {
        size_t length = strcspn(next, ":");
        char folder[4096], file[4096 + 256];
        snprintf(folder, sizeof(folder), "%.*s", (int)length, next);
        snprintf(file, sizeof(file), "%s%s%.255s", folder, length > 0 ? "/" : "", name);
        path_join(directory, file, path, capacity);
        int error_number = executable_look(path);
        if (error_number == 0)
            return SHOAL_OK;
        if (error_number != ENOENT && error_number != ENOTDIR)
            worst = error_number;
        more = next[length] == ':';
        next += length + 1;
    }
    if (worst != 0)
        return refuse(name, worst, exit_code);
    *exit_code = LAUNCH_EXIT_NOT_FOUND;
    return base_error(SHOAL_ERR_ARGUMENT, "there is no program %s in PATH (%.400s)", name,
                      search_path);
}

enum shoal_status launch_program_find(const char *directory, const char *name,
                                      const char *search_path, char *path, size_t capacity,
                                      int *exit_code)
{
    struct stat found;
    *exit_code = LAUNCH_EXIT_LAUNCH;
    if (stat(directory, &found) != 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "working directory %s (see --wdir)",
                                directory);
    if (!S_ISDIR(found.st_mode))
        return base_error(SHOAL_ERR_ARGUMENT, "working directory %s is no directory (see --wdir)",
                          directory);
    if (strchr(name, '/') == NULL)
        return search(directory, name, search_path != NULL ? search_path : DEFAULT_PATH, path,
                      capacity, exit_code);
    path_join(directory, name, path, capacity);
    int error_number = executable_look(path);
    return error_number == 0 ? SHOAL_OK : refuse(path, error_number, exit_code);
}
