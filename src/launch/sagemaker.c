/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sagemaker.c: a job whose hosts each run the same command.
 *
 * The secret is SHOAL_SECRET where the job's environment has it. Otherwise it is made of the job's
 * name, which keeps jobs apart that meet by mistake, but not somebody who knows the name: SageMaker
 * gives its hosts nothing that only they know.
 */
#include "launch/sagemaker.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/options.h"
#include "base/status.h"
#include "boot/resource_config.h"

#define SECRET_BYTES 1024

static void secret_make(const struct boot_resource_config *config, char *out, size_t capacity)
{
    const char *given = base_option_text(OPTION_SECRET), *job = getenv("TRAINING_JOB_NAME");
    if (given != NULL)
        snprintf(out, capacity, "%s", given);
    else
        snprintf(out, capacity, "sagemaker/%.256s/%.256s", job != NULL ? job : "",
                 config->hosts[0]);
}

/* The ranks' links take the interface that the file names, where it is there and nothing else was
 * asked for. */
static void interface_set(const struct boot_resource_config *config)
{
    const char *variable = base_options()[OPTION_INTERFACE].name;
    if (config->interface_name != NULL && if_nametoindex(config->interface_name) != 0)
        setenv(variable, config->interface_name, 0);
}

enum shoal_status launch_sagemaker(struct launch_options *options, const char *resource_config,
                                   int *exit_code)
{
    struct boot_resource_config *config = NULL;
    char secret[SECRET_BYTES];
    TRY(boot_resource_config_read(resource_config, &config));
    struct launch_part part = {.index = config->current,
                               .count = config->host_count,
                               .first_host = config->hosts[0],
                               .host = config->hosts[config->current],
                               .secret = secret};
    secret_make(config, secret, sizeof(secret));
    interface_set(config);
    options->part = &part;
    if (options->rank_count == 0)
        options->rank_count = 1;
    if (options->store_port == 0)
        options->store_port = LAUNCH_SAGEMAKER_STORE_PORT;
    if (options->master_port == 0)
        options->master_port = LAUNCH_SAGEMAKER_MASTER_PORT;
    enum shoal_status status = launch_run(options, exit_code);
    options->part = NULL;
    boot_resource_config_free(config);
    return status;
}
