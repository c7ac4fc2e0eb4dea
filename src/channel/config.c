/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: the files of /opt/ml/input/config, as the service documents them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define INTERFACE "eth0"

static enum shoal_status no_memory(void)
{
    return base_error(SHOAL_ERR_MEMORY, "no memory for a job's configuration");
}

/* Gives the document back; NULL is no memory. */
static enum shoal_status put_json(int folder_fd, const char *name, json_t *document)
{
    char *text = document != NULL ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(document);
    if (text == NULL)
        return no_memory();
    enum shoal_status status = channel_file_put(folder_fd, name, text, strlen(text));
    free(text);
    return status;
}

/* ---- resourceconfig.json ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of hosts (of a group; NULL: of all), in the order of their letters, as the service
 * writes them: algo-1, algo-10, algo-2. */
static json_t *host_names(const struct channel_job *job, const char *group)
{
    const char *names[CHANNEL_HOSTS_MAX];
    size_t count = 0;
    for (int i = 0; i < job->host_count; i++) {
        if (group == NULL || strcmp(job->hosts[i].group, group) == 0)
            names[count++] = job->hosts[i].name;
    }
    qsort(names, count, sizeof(names[0]), compare_texts);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

static bool is_first_of_group(const struct channel_job *job, int host)
{
    for (int i = 0; i < host; i++) {
        if (strcmp(job->hosts[i].group, job->hosts[host].group) == 0)
            return false;
    }
    return true;
}

static json_t *groups_of(const struct channel_job *job)
{
    json_t *list = json_array();
    for (int i = 0; i < job->host_count; i++) {
        const struct channel_host *host = &job->hosts[i];
        if (is_first_of_group(job, i))
            json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "instance_group_name",
                                                  host->group, "instance_type", host->type, "hosts",
                                                  host_names(job, host->group)));
    }
    return list;
}

static json_t *resources_of(const struct channel_job *job, int host)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "current_host", job->hosts[host].name,
                     "current_instance_type", job->hosts[host].type, "current_group_name",
                     job->hosts[host].group, "hosts", host_names(job, NULL), "instance_groups",
                     groups_of(job), "network_interface_name", INTERFACE);
}

/* ---- inputdataconfig.json ---- */

static json_t *input_of(const struct channel_input *input)
{
    static const char *const modes[] = {
        [CHANNEL_FILE] = "File", [CHANNEL_FAST_FILE] = "FastFile", [CHANNEL_PIPE] = "Pipe"};
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "TrainingInputMode", modes[input->mode], "S3DistributionType",
                  input->is_sharded ? "ShardedByS3Key" : "FullyReplicated", "RecordWrapperType",
                  input->is_record_io ? "RecordIO" : "None");
    if (input->content_type != NULL)
        json_object_set_new(object, "ContentType", json_string(input->content_type));
    return object;
}

/* Only the channels that the host gets. */
static json_t *inputs_of(const struct channel_job *job, const struct channel_input *inputs,
                         int count, int host)
{
    json_t *object = json_object();
    for (int i = 0; i < count; i++) {
        int hosts[CHANNEL_HOSTS_MAX], host_count = channel_input_hosts(&inputs[i], job, hosts);
        for (int k = 0; k < host_count; k++) {
            if (hosts[k] == host)
                json_object_set_new(object, inputs[i].name, input_of(&inputs[i]));
        }
    }
    return object;
}

/* ---- all ---- */

static enum shoal_status put_files(const struct channel_work *work,
                                   const struct channel_input *inputs, int count, int host, int fd)
{
    const struct channel_job *job = work->job;
    const json_t *parameters = json_object_get(job->request, "HyperParameters");
    const json_t *checkpoints = json_object_get(job->request, "CheckpointConfig");
    TRY(put_json(fd, "hyperparameters.json",
                 parameters != NULL ? json_deep_copy(parameters) : json_object()));
    TRY(put_json(fd, "resourceconfig.json", resources_of(job, host)));
    TRY(put_json(fd, "inputdataconfig.json", inputs_of(job, inputs, count, host)));
    if (checkpoints == NULL)
        return SHOAL_OK;
    return put_json(fd, "checkpointconfig.json", json_deep_copy(checkpoints));
}

enum shoal_status channel_config_put(struct channel_work *work, const struct channel_input *inputs,
                                     int count)
{
    for (int i = 0; i < work->job->host_count; i++) {
        int fd;
        TRY(channel_host_open(work->job, work->folder_fd, i, "ml/input/config", &fd));
        enum shoal_status status = put_files(work, inputs, count, i, fd);
        close(fd);
        TRY(status);
    }
    return SHOAL_OK;
}
