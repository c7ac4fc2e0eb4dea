/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.c: a folder says by its name, NAME.ID.ATTEMPT, or ID of a warm pool, whose it is. */
#include "service/leftover.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "job/supervisor.h"
#include "logs/logs.h"
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

static enum shoal_status job_look_at(struct service *service, const char *entry)
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

static enum shoal_status pool_is_wanted(struct service *service, int64_t id, bool *out)
{
    struct sql_database *reader;
    TRY(sql_reader_take(&service->readers, &reader));
    sqlite3_stmt *find = sql_statement(reader, SERVICE_SQL_POOL_HAS_CACHE);
    sql_bind_int(reader, find, 1, id);
    enum shoal_status status = sql_step(reader, find, out);
    sql_reset(find);
    sql_reader_give(&service->readers, reader);
    return status;
}

static enum shoal_status pool_look_at(struct service *service, const char *entry)
{
    char path[SERVICE_PATH_BYTES], *end;
    bool wanted;
    int64_t id = strtoll(entry, &end, 10);
    if (end == entry || *end != '\0')
        return SHOAL_OK;
    TRY(pool_is_wanted(service, id, &wanted));
    snprintf(path, sizeof(path), "%s/pools/%" PRId64, service->directory, id);
    return wanted ? SHOAL_OK : service_folder_remove(path);
}

static void look_at_all(struct service *service, const char *where,
                        enum shoal_status (*look_at)(struct service *service, const char *entry))
{
    char path[SERVICE_PATH_BYTES];
    struct dirent *entry;
    snprintf(path, sizeof(path), "%s/%s", service->directory, where);
    DIR *folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (look_at(service, entry->d_name) != SHOAL_OK)
            base_log(BASE_LOG_WARN, "what is left of %s: %s", where, base_error_text());
    if (folder != NULL)
        closedir(folder);
}

void service_leftovers_remove(struct service *service)
{
    look_at_all(service, "jobs", job_look_at);
    look_at_all(service, "pools", pool_look_at);
    if (logs_sweep(service->logs) != SHOAL_OK)
        base_log(BASE_LOG_WARN, "what is left of logs: %s", base_error_text());
}
