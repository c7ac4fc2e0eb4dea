/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.c: a folder says by its name, NAME.ID.ATTEMPT, whose it is. */
#include "service/leftover.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "job/supervisor.h"
#include "service/files.h"
#include "service/record.h"

/* Names have no dots. */
static bool name_read(const char *entry, int64_t *id, int *attempt)
{
    const char *dot = strchr(entry, '.');
    int used = 0;
    return dot != NULL && sscanf(dot, ".%" SCNd64 ".%d%n", id, attempt, &used) == 2 &&
           dot[used] == '\0';
}

static enum shoal_status is_wanted(struct service *service, int64_t id, int attempt, bool *out)
{
    struct sql_database *reader;
    struct service_row row;
    TRY(sql_reader_take(&service->readers, &reader));
    enum shoal_status status = service_row_get(reader, id, &row);
    sql_reader_give(&service->readers, reader);
    *out = status == SHOAL_OK && row.phase != SERVICE_ENDED && row.attempt == attempt;
    return status == SHOAL_ERR_STATE ? SHOAL_OK : status; /* the job was deleted */
}

static enum shoal_status look_at(struct service *service, const char *entry)
{
    char path[SERVICE_PATH_BYTES];
    int64_t id;
    int attempt;
    bool wanted;
    enum job_presence presence;
    if (!name_read(entry, &id, &attempt))
        return SHOAL_OK;
    TRY(is_wanted(service, id, attempt, &wanted));
    if (wanted)
        return SHOAL_OK;
    snprintf(path, sizeof(path), "%s/jobs/%s", service->directory, entry);
    TRY(job_supervisor_find(path, &presence));
    return presence == JOB_RUNS ? SHOAL_OK : service_folder_remove(path);
}

void service_leftovers_remove(struct service *service)
{
    char path[SERVICE_PATH_BYTES];
    struct dirent *entry;
    snprintf(path, sizeof(path), "%s/jobs", service->directory);
    DIR *folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (look_at(service, entry->d_name) != SHOAL_OK)
            base_log(BASE_LOG_WARN, "what is left of jobs: %s", base_error_text());
    if (folder != NULL)
        closedir(folder);
}
