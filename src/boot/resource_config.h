/* SPDX-License-Identifier: Apache-2.0 */
/* resource_config.h: SageMaker's resourceconfig.json: the hosts of a job, and which of them is
 * this.
 */
#ifndef SHOAL_BOOT_RESOURCE_CONFIG_H
#define SHOAL_BOOT_RESOURCE_CONFIG_H

#include "shoal.h"

/* Where it stands in training and in processing jobs. */
#define BOOT_RESOURCE_CONFIG_TRAINING   "/opt/ml/input/config/resourceconfig.json"
#define BOOT_RESOURCE_CONFIG_PROCESSING "/opt/ml/config/resourceconfig.json"

struct boot_resource_config {
    int host_count;       /* 1 or more */
    char **hosts;         /* names, in the file's order, which is the same on all hosts */
    int current;          /* index of this host */
    char *interface_name; /* network interface, NULL if the file has none */
    char *path;           /* the file that was read */
};

/* Reads the file; path NULL: the first of the two places where one is. SHOAL_ERR_SYSTEM: there is
 * none, or it cannot be read; SHOAL_ERR_FORMAT names file, line and column of what is wrong in it.
 */
enum shoal_status boot_resource_config_read(const char *path, struct boot_resource_config **out);
void boot_resource_config_free(struct boot_resource_config *config);

#endif
