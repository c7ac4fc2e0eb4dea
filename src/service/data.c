/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: a job's request and instances, as the room channel wants them. */
#include "service/data.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "service/step.h"

static enum shoal_status rows_read(struct service *service, int64_t id, struct service_data *data)
{
    struct sql_database *reader;
    TRY(sql_reader_take(&service->readers, &reader));
    enum shoal_status status = service_row_get(reader, id, &data->row);
    if (status == SHOAL_OK)
        status = service_request_get(reader, id, &data->request, NULL);
    sql_reader_give(&service->readers, reader);
    return status;
}

static enum shoal_status fill(const struct service *service, const json_t *request,
                              struct service_data *data)
{
    TRY(service_request_hosts(request, &data->hosts));
    snprintf(data->file_systems, sizeof(data->file_systems), "%s/filesystems.conf",
             service->directory);
    snprintf(data->buckets, sizeof(data->buckets), "%s/buckets.conf", service->directory);
    data->channel = (struct channel_job){.name = data->row.name,
                                         .request = request,
                                         .folder = data->folder,
                                         .hosts = data->hosts.list,
                                         .host_count = data->hosts.count,
                                         .store = service->store,
                                         .file_systems = data->file_systems,
                                         .buckets = data->buckets};
    return SHOAL_OK;
}

enum shoal_status service_data_load(struct service *service, const struct service_job *job,
                                    struct service_data **out)
{
    struct service_data *data;
    TRY(BASE_NEW(&data, "a job's request"));
    service_job_folder(service, job, data->folder);
    enum shoal_status status = rows_read(service, job->id, data);
    if (status == SHOAL_OK)
        status = fill(service, data->request, data);
    if (status != SHOAL_OK)
        service_data_free(data, false);
    else
        *out = data;
    return status;
}

enum shoal_status service_data_check(const struct service *service, const json_t *request)
{
    struct service_data *data;
    TRY(BASE_NEW(&data, "a job's request"));
    enum shoal_status status = fill(service, request, data);
    if (status == SHOAL_OK)
        status = channel_check(&data->channel);
    base_free(data);
    return status;
}

enum shoal_status service_data_follow(struct service_data *data)
{
    return channel_checkpoints_start(&data->channel, &data->checkpoints);
}

void service_data_free(struct service_data *data, bool job_has_ended)
{
    if (data == NULL)
        return;
    channel_checkpoints_end(data->checkpoints, job_has_ended);
    json_decref(data->request);
    base_free(data);
}
