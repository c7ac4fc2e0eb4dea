/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c: names, read from the directory for each request: ten thousand take some ms. */
#include "logs/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define FIRST_COUNT 16

void logs_names_release(struct logs_names *names)
{
    base_free(names->items);
    *names = (struct logs_names){0};
}

static enum shoal_status grow(struct logs_names *names)
{
    size_t capacity = names->capacity > 0 ? names->capacity * 2 : FIRST_COUNT;
    void *items;
    TRY(base_alloc_array(capacity, sizeof(names->items[0]), "names of logs", &items));
    if (names->count > 0)
        memcpy(items, names->items, names->count * sizeof(names->items[0]));
    base_free(names->items);
    names->items = items;
    names->capacity = capacity;
    return SHOAL_OK;
}

enum shoal_status logs_names_add(struct logs_names *names, const char *name)
{
    if (names->count == names->capacity)
        TRY(grow(names));
    snprintf(names->items[names->count++], sizeof(names->items[0]), "%s", name);
    return SHOAL_OK;
}

static int compare(const void *one, const void *other)
{
    return strcmp(one, other);
}

static void sort(struct logs_names *names, size_t first)
{
    if (names->count > first)
        qsort(names->items + first, names->count - first, sizeof(names->items[0]), compare);
}

void logs_names_sort(struct logs_names *names)
{
    sort(names, 0);
}

/* ---- forms of names ---- */

bool logs_is_job(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '-')
            return false;
    }
    return length > 0 && length < LOGS_JOB_BYTES && name[0] != '-' && name[length - 1] != '-';
}

/* Digits without a zero in front; NULL if there are none or too many. */
static const char *number_read(const char *text, int64_t *out)
{
    const int digits_max = 12;
    int digits = 0;
    for (*out = 0; isdigit((unsigned char)*text) && digits <= digits_max; digits++)
        *out = *out * 10 + (*text++ - '0');
    return digits > 0 && digits <= digits_max ? text : NULL;
}

bool logs_is_file(const char *name, int *number, int64_t *epoch_s)
{
    int64_t first, second;
    if (strlen(name) >= LOGS_FILE_BYTES || strncmp(name, "algo-", 5) != 0)
        return false;
    const char *at = number_read(name + 5, &first);
    if (at == NULL || *at != '-' || first > INT_MAX)
        return false;
    at = number_read(at + 1, &second);
    if (at == NULL || *at != '\0')
        return false;
    if (number != NULL)
        *number = (int)first;
    if (epoch_s != NULL)
        *epoch_s = second;
    return true;
}

bool logs_is_stream(const char *name)
{
    char job[LOGS_JOB_BYTES];
    const char *slash = strchr(name, '/');
    if (slash == NULL || (size_t)(slash - name) >= sizeof(job))
        return false;
    snprintf(job, sizeof(job), "%.*s", (int)(slash - name), name);
    return logs_is_job(job) && logs_is_file(slash + 1, NULL, NULL);
}

enum shoal_status logs_path(const char *root, const char *name, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", root, name) >= PATH_MAX)
        return base_error(SHOAL_ERR_LIMIT, "the path of the log %s is too long", name);
    return SHOAL_OK;
}

/* ---- lists ---- */

/* Whether a name with this beginning could have the prefix: one of both begins with the other. */
static bool agree(const char *beginning, const char *prefix)
{
    size_t one = strlen(beginning), other = strlen(prefix);
    return strncmp(beginning, prefix, one < other ? one : other) == 0;
}

/* Opens a folder; *out is NULL if it is not there. */
static enum shoal_status folder_open(const char *path, DIR **out)
{
    *out = opendir(path);
    if (*out == NULL && errno != ENOENT && errno != ENOTDIR)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot list %s", path);
    return SHOAL_OK;
}

static enum shoal_status jobs_read(DIR *folder, const char *prefix, struct logs_names *out)
{
    const struct dirent *entry;
    enum shoal_status status = SHOAL_OK;
    while (status == SHOAL_OK && (entry = readdir(folder)) != NULL) {
        char beginning[LOGS_JOB_BYTES + 1];
        if (!logs_is_job(entry->d_name))
            continue;
        snprintf(beginning, sizeof(beginning), "%.*s/", LOGS_JOB_BYTES - 1, entry->d_name);
        if (agree(beginning, prefix))
            status = logs_names_add(out, beginning);
    }
    return status;
}

/* A prefix that names its job whole needs no list. */
static enum shoal_status job_add(const char *prefix, size_t bytes, struct logs_names *out)
{
    char job[LOGS_JOB_BYTES];
    snprintf(job, sizeof(job), "%.*s", (int)(bytes < sizeof(job) ? bytes : 0), prefix);
    return logs_is_job(job) ? logs_names_add(out, job) : SHOAL_OK;
}

/* Sorted with the '/' behind them, as their streams are; it goes then. */
enum shoal_status logs_jobs_list(const char *root, const char *prefix, struct logs_names *out)
{
    DIR *folder = NULL;
    const char *slash = strchr(prefix, '/');
    size_t first = out->count;
    if (slash != NULL)
        return job_add(prefix, (size_t)(slash - prefix), out);
    TRY(folder_open(root, &folder));
    if (folder == NULL)
        return SHOAL_OK;
    enum shoal_status status = jobs_read(folder, prefix, out);
    closedir(folder);
    sort(out, first);
    for (size_t i = first; i < out->count; i++)
        out->items[i][strlen(out->items[i]) - 1] = '\0';
    return status;
}

enum shoal_status logs_streams_list(const char *root, const char *job, const char *prefix,
                                    struct logs_names *out)
{
    char path[PATH_MAX];
    DIR *folder;
    const struct dirent *entry;
    enum shoal_status status = SHOAL_OK;
    size_t first = out->count;
    TRY(logs_path(root, job, path));
    TRY(folder_open(path, &folder));
    if (folder == NULL)
        return SHOAL_OK;
    while (status == SHOAL_OK && (entry = readdir(folder)) != NULL) {
        if (!logs_is_file(entry->d_name, NULL, NULL))
            continue;
        char name[LOGS_STREAM_BYTES];
        snprintf(name, sizeof(name), "%s/%.*s", job, LOGS_FILE_BYTES - 1, entry->d_name);
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            status = logs_names_add(out, name);
    }
    closedir(folder);
    sort(out, first);
    return status;
}
