/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment_sagemaker.c: one process per host of a SageMaker job, without a launcher: the rank is
 * the host's place in resourceconfig.json.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"
#include "boot/environment_reader.h"
#include "boot/resource_config.h"

/* SageMaker keeps 7777 free on every host for the framework's own store, and the next for this. */
#define STORE_PORT 7778

static bool applies(void)
{
    return access(BOOT_RESOURCE_CONFIG_TRAINING, F_OK) == 0 ||
           access(BOOT_RESOURCE_CONFIG_PROCESSING, F_OK) == 0;
}

static enum shoal_status read_identity(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    struct boot_resource_config *config;
    TRY(boot_resource_config_read(NULL, &config));
    identity->rank = config->current;
    identity->size = config->host_count;
    identity->local_rank = 0;
    identity->local_size = 1;
    enum shoal_status status = SHOAL_OK;
    if (identity->size > 1) {
        const char *job = boot_variable("TRAINING_JOB_NAME");
        char weak[512];
        snprintf(weak, sizeof(weak), "sagemaker/%.128s/%.255s", job != NULL ? job : "",
                 config->hosts[0]);
        status = boot_identity_place(identity, config->hosts[0], STORE_PORT, weak);
    }
    boot_resource_config_free(config);
    return status;
}

const struct boot_reader boot_reader_sagemaker = {"sagemaker", applies, read_identity};
