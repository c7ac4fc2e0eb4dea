/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: folders of jobs, made and removed. */
#include "service/files.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

enum shoal_status service_folder_make(const char *path)
{
    char part[SERVICE_FILE_BYTES];
    snprintf(part, sizeof(part), "%s", path);
    for (char *at = strchr(part + 1, '/');; at = strchr(at + 1, '/')) {
        if (at != NULL)
            *at = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't make the directory %s", part);
        if (at == NULL)
            return SHOAL_OK;
        *at = '/';
    }
}

enum shoal_status service_json_write(const char *folder, const char *name, const json_t *value)
{
    char path[SERVICE_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (json_dump_file(value, path, JSON_COMPACT) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't write %s", path);
    return SHOAL_OK;
}

static int entry_remove(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

enum shoal_status service_folder_remove(const char *path)
{
    if (nftw(path, entry_remove, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 && errno != ENOENT)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "removing %s", path);
    return SHOAL_OK;
}

enum shoal_status service_folder_clear(const char *path, const char *keep)
{
    char entry_path[SERVICE_FILE_BYTES];
    enum shoal_status status = SHOAL_OK;
    struct dirent *entry;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    while (status == SHOAL_OK && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(entry->d_name, keep) == 0)
            continue;
        snprintf(entry_path, sizeof(entry_path), "%s/%s", path, entry->d_name);
        status = service_folder_remove(entry_path);
    }
    closedir(folder);
    return status;
}
