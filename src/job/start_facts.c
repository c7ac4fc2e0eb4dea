/* SPDX-License-Identifier: Apache-2.0 */
/* start_facts.c: reads the files; start_variables.c makes variables of them. */
#include "job/start_facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/wait.h"
#include "job/devices.h"
#include "job/start.h"
#include "job/start_state.h"

#define PATH_BYTES     4096
#define FILE_BYTES_MAX (16 << 20)

static enum shoal_status no_memory(void)
{
    return base_error(SHOAL_ERR_MEMORY, "no memory for what an instance is told");
}

/* ---- files ---- */

static enum shoal_status read_object(const char *folder, const char *name, bool required,
                                     json_t **out)
{
    char path[PATH_BYTES];
    json_error_t error;
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (stat(path, &status) != 0) {
        if (errno != ENOENT || required)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
        *out = json_object();
        return *out != NULL ? SHOAL_OK : no_memory();
    }
    if (status.st_size > FILE_BYTES_MAX)
        return base_error(SHOAL_ERR_FORMAT, "%s is larger than 16 MiB", path);
    *out = json_load_file(path, 0, &error);
    if (*out == NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s, line %d, column %d: %s", path, error.line,
                          error.column, error.text);
    if (!json_is_object(*out))
        return base_error(SHOAL_ERR_FORMAT, "%s is not an object", path);
    return SHOAL_OK;
}

/* ---- hyperparameters ---- */

/* The SDK writes every value as JSON in a text; others write texts. */
static json_t *decode(const json_t *value)
{
    const char *text = json_string_value(value);
    json_t *decoded = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return decoded != NULL ? decoded : json_incref((json_t *)value);
}

static bool is_toolkits(const char *name)
{
    static const char *const names[] = {"sagemaker_program",
                                        "sagemaker_submit_directory",
                                        "sagemaker_enable_cloudwatch_metrics",
                                        "sagemaker_region",
                                        "sagemaker_container_log_level",
                                        "sagemaker_job_name",
                                        "sagemaker_s3_output",
                                        "default_user_module_name",
                                        "_tuning_objective_metric"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static enum shoal_status sort_hyperparameters(const json_t *all, struct start_facts *facts)
{
    const char *name;
    json_t *value;
    facts->hyperparameters = json_object();
    facts->framework = json_object();
    facts->own = json_object();
    json_object_foreach((json_t *)all, name, value)
    {
        json_t *kind = facts->hyperparameters;
        if (is_toolkits(name))
            kind = facts->own;
        else if (strncmp(name, START_PREFIX, strlen(START_PREFIX)) == 0)
            kind = facts->framework;
        if (json_object_set_new(kind, name, decode(value)) != 0)
            return no_memory();
    }
    return SHOAL_OK;
}

static enum shoal_status read_hyperparameters(const char *folder, struct start_facts *facts)
{
    json_t *all = NULL;
    enum shoal_status status = read_object(folder, "hyperparameters.json", false, &all);
    if (status == SHOAL_OK)
        status = sort_hyperparameters(all, facts);
    json_decref(all);
    return status;
}

bool start_facts_enabled(const struct start_facts *facts, const char *name)
{
    return json_is_true(json_object_get(facts->framework, name));
}

int start_facts_number(const struct start_facts *facts, const char *name)
{
    const json_t *value = json_object_get(facts->framework, name);
    if (json_is_integer(value) && json_integer_value(value) > 0 &&
        json_integer_value(value) < 1000000)
        return (int)json_integer_value(value);
    return 0;
}

const char *start_facts_text(const struct start_facts *facts, const char *name)
{
    const char *text = json_string_value(json_object_get(facts->framework, name));
    return text != NULL ? text : "";
}

/* ---- hosts ---- */

static const char *text_of(const json_t *object, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : otherwise;
}

static bool is_distributed(const struct start_facts *facts)
{
    static const char *const names[] = {
        START_MPI,         START_DATA_PARALLEL,    START_PYTORCH_DDP, START_TORCH_DISTRIBUTED,
        START_PYTORCH_XLA, START_PARAMETER_SERVER, START_MIRRORED};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (start_facts_enabled(facts, names[i]))
            return true;
    return false;
}

/* The groups that a distribution names, by default this instance's where there is one at all. */
static enum shoal_status find_groups(struct start_facts *facts)
{
    const json_t *named = json_object_get(facts->framework, START_DISTRIBUTION_GROUPS);
    if (json_is_array(named))
        facts->distribution_groups = json_incref((json_t *)named);
    else if (is_distributed(facts))
        facts->distribution_groups = json_pack("[s]", facts->group);
    else
        facts->distribution_groups = json_array();
    return facts->distribution_groups != NULL ? SHOAL_OK : no_memory();
}

static bool has_text(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item != NULL && strcmp(item, text) == 0)
            return true;
    }
    return false;
}

static enum shoal_status find_hosts(struct start_facts *facts)
{
    const json_t *groups = json_object_get(facts->resources, "instance_groups");
    facts->group_hosts = json_array();
    facts->distribution_hosts = json_array();
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        const char *name = text_of(group, "instance_group_name", "");
        json_t *hosts = json_object_get(group, "hosts");
        if (strcmp(name, facts->group) == 0)
            json_array_extend(facts->group_hosts, hosts);
        if (has_text(facts->distribution_groups, name))
            json_array_extend(facts->distribution_hosts, hosts);
    }
    if (json_array_size(groups) == 0)
        json_array_extend(facts->distribution_hosts, json_object_get(facts->resources, "hosts"));
    return facts->group_hosts != NULL && facts->distribution_hosts != NULL ? SHOAL_OK : no_memory();
}

static enum shoal_status check_texts(const json_t *hosts)
{
    for (size_t i = 0; i < json_array_size(hosts); i++)
        if (!json_is_string(json_array_get(hosts, i)))
            return base_error(SHOAL_ERR_FORMAT, "resourceconfig.json has hosts that are no texts");
    return SHOAL_OK;
}

static enum shoal_status check_resources(const struct start_facts *facts)
{
    const json_t *hosts = json_object_get(facts->resources, "hosts");
    TRY(check_texts(hosts));
    if (!has_text(hosts, facts->host))
        return base_error(SHOAL_ERR_FORMAT,
                          "resourceconfig.json lacks hosts, or current_host is none of them");
    return SHOAL_OK;
}

static enum shoal_status find_places(struct start_facts *facts)
{
    facts->host = text_of(facts->resources, "current_host", "");
    facts->type = text_of(facts->resources, "current_instance_type", "local");
    facts->group = text_of(facts->resources, "current_group_name", JOB_GROUP_HOMOGENEOUS);
    facts->interface = text_of(facts->resources, "network_interface_name", "eth0");
    facts->program = text_of(facts->own, START_PROGRAM_NAME, "");
    facts->submitted = text_of(facts->own, START_SUBMIT_DIRECTORY, JOB_START_DIRECTORY);
    TRY(check_resources(facts));
    TRY(find_groups(facts));
    TRY(find_hosts(facts));
    TRY(check_texts(facts->distribution_hosts));
    const json_t *first = json_array_get(facts->distribution_hosts, 0);
    if (first == NULL)
        first = json_array_get(json_object_get(facts->resources, "hosts"), 0);
    facts->leader = json_string_value(first);
    return SHOAL_OK;
}

/* ---- all ---- */

static enum shoal_status read_all(const char *folder, struct start_facts *facts)
{
    TRY(read_object(folder, "resourceconfig.json", true, &facts->resources));
    TRY(read_object(folder, "inputdataconfig.json", false, &facts->channels));
    TRY(read_hyperparameters(folder, facts));
    facts->core_count = base_cores_granted();
    facts->accelerator_count = devices_count();
    return find_places(facts);
}

enum shoal_status start_facts_read(const char *folder, struct start_facts *out)
{
    struct start_facts facts = {0};
    enum shoal_status status = read_all(folder, &facts);
    if (status != SHOAL_OK) {
        start_facts_release(&facts);
        return status;
    }
    *out = facts;
    return SHOAL_OK;
}

void start_facts_release(struct start_facts *facts)
{
    json_decref(facts->hyperparameters);
    json_decref(facts->framework);
    json_decref(facts->own);
    json_decref(facts->resources);
    json_decref(facts->channels);
    json_decref(facts->distribution_groups);
    json_decref(facts->distribution_hosts);
    json_decref(facts->group_hosts);
    *facts = (struct start_facts){0};
}
