/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_systems.c: EFS and FSx as directories of this machine, by a table:
 *
 *     # id                    directory           access
 *     fs-0123456789abcdef0    /data/shared
 *     fs-0fedcba9876543210    /scratch            ro
 *
 * A path of FSx for Lustre begins with the name that the file system is mounted by, which is left
 * off.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "channel/input.h"
#include "channel/tree.h"

#define LINE_BYTES 4352

struct row {
    char directory[PATH_MAX];
    bool is_read_only;
};

static enum shoal_status wrong_line(const char *path, int number, const char *why)
{
    return base_error(SHOAL_ERR_ARGUMENT, "%s, line %d: %s", path, number, why);
}

/* One line; *found says whether it is the one. */
static enum shoal_status read_line(const char *path, int number, char *line, const char *id,
                                   struct row *row, bool *found)
{
    char *rest = NULL;
    line[strcspn(line, "#\n")] = '\0';
    const char *name = strtok_r(line, " \t", &rest);
    const char *directory = strtok_r(NULL, " \t", &rest);
    const char *access = strtok_r(NULL, " \t", &rest);
    *found = false;
    if (name == NULL)
        return SHOAL_OK;
    if (directory == NULL || *directory != '/' || strlen(directory) >= sizeof(row->directory))
        return wrong_line(path, number, "must be `id /directory [ro]`");
    if (access != NULL && strcmp(access, "ro") != 0 && strcmp(access, "rw") != 0)
        return wrong_line(path, number, "the access must be ro or rw");
    if (strcmp(name, id) == 0) {
        snprintf(row->directory, sizeof(row->directory), "%s", directory);
        row->is_read_only = access != NULL && strcmp(access, "ro") == 0;
        *found = true;
    }
    return SHOAL_OK;
}

static enum shoal_status find_row(const char *path, const char *id, struct row *row)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    if (file == NULL && path != NULL && errno != ENOENT)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "opening %s", path);
    enum shoal_status status = SHOAL_OK;
    for (int number = 1;
         file != NULL && !found && status == SHOAL_OK && fgets(line, sizeof(line), file) != NULL;
         number++)
        status = read_line(path, number, line, id, row, &found);
    if (file != NULL)
        fclose(file);
    TRY(status);
    if (!found)
        return base_error(
            SHOAL_ERR_ARGUMENT,
            "The file system '%.64s' is not known here. Add a line `%.64s /directory` "
            "to %s.",
            id, id, path != NULL ? path : "filesystems.conf");
    return SHOAL_OK;
}

/* What of the request's path stands below the row's directory. */
static const char *path_below(const struct channel_input *input)
{
    const char *path = input->directory + strspn(input->directory, "/");
    if (input->is_lustre) {
        path += strcspn(path, "/");
        path += strspn(path, "/");
    }
    return path;
}

enum shoal_status channel_file_system_find(const struct channel_job *job,
                                           const struct channel_input *input, char *out,
                                           size_t capacity)
{
    struct row row;
    const char *below = path_below(input);
    TRY(find_row(job->file_systems, input->file_system, &row));
    if (row.is_read_only && input->is_writable)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "The channel '%s' wants to write in the file system '%.64s', which is "
                          "read-only (ro) in %s.",
                          input->name, input->file_system, job->file_systems);
    int base_fd = open(row.directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = base_fd >= 0 ? channel_open_beneath(base_fd, below, O_PATH | O_DIRECTORY, 0) : -1;
    int number = errno;
    if (fd >= 0)
        close(fd);
    if (base_fd >= 0)
        close(base_fd);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, number,
                                "The directory '%.300s' of the file system '%.64s' (%.300s on this "
                                "machine)",
                                input->directory, input->file_system, row.directory);
    if (snprintf(out, capacity, "%s/%s", row.directory, below) >= (int)capacity)
        return base_error(SHOAL_ERR_ARGUMENT, "The directory '%.300s' is too long",
                          input->directory);
    return SHOAL_OK;
}
