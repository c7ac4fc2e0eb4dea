/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_variables.c: the variables and arguments of scripts, under the names and in the forms of
 * the public training toolkit.
 *
 * They are first made as JSON values under their names without SM_, which is also what
 * SM_TRAINING_ENV holds, and then as texts.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/start.h"
#include "job/start_facts.h"
#include "job/start_json.h"
#include "job/start_state.h"
#include "job/start_text.h"

#define NAME_BYTES        512
#define LOG_LEVEL_DEFAULT 20

static enum shoal_status put_same(json_t *object, const char *name, const json_t *value)
{
    return start_put(object, name, value != NULL ? json_incref((json_t *)value) : json_null());
}

/* ---- values ---- */

static enum shoal_status put_folders(json_t *values)
{
    static const char *const folders[][2] = {
        {"input_dir", "/opt/ml/input"},
        {"input_config_dir", "/opt/ml/input/config"},
        {"output_dir", "/opt/ml/output"},
        {"output_data_dir", "/opt/ml/output/data"},
        {"output_intermediate_dir", "/opt/ml/output/intermediate"},
        {"model_dir", "/opt/ml/model"}};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        TRY(start_put_text(values, folders[i][0], folders[i][1]));
    return SHOAL_OK;
}

static enum shoal_status put_groups(const struct start_facts *facts, json_t *values)
{
    const json_t *groups = json_object_get(facts->resources, "instance_groups");
    json_t *names = json_array(), *by_name = json_object();
    TRY(start_put(values, "instance_groups", names));
    TRY(start_put(values, "instance_groups_dict", by_name));
    for (size_t i = 0; i < json_array_size(groups); i++) {
        json_t *group = json_array_get(groups, i);
        const char *name = json_string_value(json_object_get(group, "instance_group_name"));
        if (name == NULL)
            continue;
        TRY(start_add_text(names, name));
        TRY(put_same(by_name, name, group));
    }
    TRY(start_put_text(values, "current_instance_group", facts->group));
    TRY(put_same(values, "current_instance_group_hosts", facts->group_hosts));
    TRY(put_same(values, "distribution_instance_groups", facts->distribution_groups));
    return start_put(values, "is_hetero", json_boolean(json_array_size(names) > 1));
}

static enum shoal_status put_hosts(const struct start_facts *facts, json_t *values)
{
    const json_t *topology = json_object_get(facts->resources, "topology");
    TRY(put_same(values, "hosts", json_object_get(facts->resources, "hosts")));
    TRY(start_put_text(values, "current_host", facts->host));
    TRY(start_put_text(values, "current_instance_type", facts->type));
    TRY(start_put_text(values, "network_interface_name", facts->interface));
    TRY(put_same(values, "resource_config", facts->resources));
    if (json_array_size(topology) > 0)
        TRY(put_same(values, "topology", topology));
    return put_groups(facts, values);
}

/* "train.py" is the module "train". */
static enum shoal_status put_module(const struct start_facts *facts, json_t *values)
{
    size_t length = strlen(facts->program);
    const json_t *level = json_object_get(facts->own, "sagemaker_container_log_level");
    if (length > 3 && strcmp(facts->program + length - 3, ".py") == 0)
        length -= 3;
    TRY(start_put(values, "module_name", json_stringn(facts->program, length)));
    TRY(start_put_text(values, "user_entry_point", facts->program));
    TRY(start_put_text(values, "module_dir", facts->submitted));
    TRY(start_put(values, "framework_module", json_null()));
    return level != NULL ? put_same(values, "log_level", level)
                         : start_put(values, "log_level", json_integer(LOG_LEVEL_DEFAULT));
}

static enum shoal_status put_machine(const struct start_facts *facts, json_t *values)
{
    TRY(start_put(values, "num_cpus", json_integer(facts->core_count)));
    TRY(start_put(values, "num_gpus", json_integer(facts->accelerator_count)));
    return start_put(values, "num_neurons", json_integer(0));
}

/* What both the variables and SM_TRAINING_ENV have. */
static enum shoal_status put_common(const struct start_facts *facts, json_t *values)
{
    TRY(put_folders(values));
    TRY(put_hosts(facts, values));
    TRY(put_module(facts, values));
    TRY(put_machine(facts, values));
    return put_same(values, "input_data_config", facts->channels);
}

static enum shoal_status put_channels(const struct start_facts *facts, json_t *folders)
{
    const char *name;
    json_t *value;
    json_object_foreach(facts->channels, name, value)
        TRY(start_put(folders, name, json_sprintf("/opt/ml/input/data/%s", name)));
    return SHOAL_OK;
}

static enum shoal_status put_training_env(const struct start_facts *facts, json_t *values)
{
    json_t *all = json_object(), *folders = json_object();
    const char *job = getenv("TRAINING_JOB_NAME");
    TRY(start_put(values, "training_env", all));
    TRY(start_put(all, "channel_input_dirs", folders));
    TRY(put_channels(facts, folders));
    TRY(put_common(facts, all));
    TRY(put_same(all, "hyperparameters", facts->hyperparameters));
    TRY(put_same(all, "additional_framework_parameters", facts->framework));
    TRY(put_same(all, "distribution_hosts", facts->distribution_hosts));
    TRY(start_put_text(all, "master_hostname", facts->leader));
    TRY(start_put(all, "is_master", json_boolean(strcmp(facts->leader, facts->host) == 0)));
    TRY(start_put(all, "is_smddprun_installed", json_true()));
    TRY(start_put(all, "is_smddpmprun_installed", json_true()));
    TRY(start_put(all, "is_modelparallel_enabled",
                  json_object_get(facts->hyperparameters, "mp_parameters") != NULL ? json_true()
                                                                                   : json_null()));
    if (json_object_get(all, "topology") == NULL)
        TRY(start_put(all, "topology", json_array()));
    return job != NULL ? start_put_text(all, "job_name", job)
                       : start_put(all, "job_name", json_null());
}

static enum shoal_status put_channel_names(const struct start_facts *facts, json_t *values)
{
    json_t *list = json_array();
    const char **keys;
    TRY(start_put(values, "channels", list));
    TRY(start_names(facts->channels, &keys));
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; keys[i] != NULL && status == SHOAL_OK; i++)
        status = start_add_text(list, keys[i]);
    base_free(keys);
    return status;
}

/* Members of an object as "<prefix><member>". */
static enum shoal_status put_members(json_t *values, const char *prefix, const json_t *object)
{
    char member[NAME_BYTES];
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        snprintf(member, sizeof(member), "%s%s", prefix, name);
        TRY(put_same(values, member, value));
    }
    return SHOAL_OK;
}

static enum shoal_status put_values(const struct start_facts *facts, json_t *values)
{
    json_t *folders = json_object(), *arguments = json_array();
    TRY(start_put(values, "user_args", arguments));
    enum shoal_status status = start_facts_arguments(facts, arguments);
    if (status == SHOAL_OK)
        status = put_channels(facts, folders);
    if (status == SHOAL_OK)
        status = put_members(values, "channel_", folders);
    json_decref(folders);
    TRY(status);
    TRY(put_common(facts, values));
    TRY(put_channel_names(facts, values));
    TRY(put_same(values, "hps", facts->hyperparameters));
    TRY(put_members(values, "hp_", facts->hyperparameters));
    TRY(put_same(values, "framework_params", facts->framework));
    return put_training_env(facts, values);
}

/* ---- texts ---- */

/* "hp_learning-rate" becomes SM_HP_LEARNING-RATE. */
static enum shoal_status put_variable(json_t *variables, const char *name, const json_t *value)
{
    char upper[NAME_BYTES + 8];
    char *text;
    snprintf(upper, sizeof(upper), "SM_%s", name);
    for (char *at = upper; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    TRY(start_text_variable(value, &text));
    enum shoal_status status = start_put_text(variables, upper, text);
    base_free(text);
    return status;
}

static enum shoal_status put_others(const struct start_facts *facts, json_t *variables)
{
    const char *job = json_string_value(json_object_get(facts->own, "sagemaker_job_name"));
    const char *region = json_string_value(json_object_get(facts->own, "sagemaker_region"));
    char port[16];
    snprintf(port, sizeof(port), "%d", START_MASTER_PORT);
    TRY(start_put_text(variables, "CURRENT_HOST", facts->host));
    TRY(start_put_text(variables, "SAGEMAKER_JOB_NAME", job != NULL ? job : ""));
    TRY(start_put_text(variables, "SAGEMAKER_REGION", region != NULL ? region : ""));
    TRY(start_put_text(variables, "MASTER_ADDR", facts->leader));
    TRY(start_put_text(variables, "MASTER_PORT", port));
    TRY(start_put_text(variables, "NCCL_SOCKET_IFNAME", facts->interface));
    TRY(start_put_text(variables, "NCCL_IB_DISABLE", "1"));
    return start_put_text(variables, "NCCL_DEBUG", "WARN");
}

enum shoal_status start_facts_variables(const struct start_facts *facts, json_t *variables)
{
    json_t *values = json_object();
    const char *name;
    json_t *value;
    enum shoal_status status = put_values(facts, values);
    json_object_foreach(values, name, value)
    {
        if (status == SHOAL_OK)
            status = put_variable(variables, name, value);
    }
    json_decref(values);
    return status == SHOAL_OK ? put_others(facts, variables) : status;
}

/* ---- arguments ---- */

static enum shoal_status add_argument(json_t *arguments, const char *name, const json_t *value)
{
    char *text;
    const char *hyphens = strlen(name) > 1 ? "--" : "-";
    TRY(start_add(arguments, json_sprintf("%s%s", hyphens, name)));
    TRY(start_text_argument(value, &text));
    enum shoal_status status = start_add_text(arguments, text);
    base_free(text);
    return status;
}

enum shoal_status start_facts_arguments(const struct start_facts *facts, json_t *arguments)
{
    const char **keys;
    TRY(start_names(facts->hyperparameters, &keys));
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; keys[i] != NULL && status == SHOAL_OK; i++)
        status = add_argument(arguments, keys[i], json_object_get(facts->hyperparameters, keys[i]));
    base_free(keys);
    return status;
}
