/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sagemaker.h: a job whose hosts each run the same `shoal run --sagemaker` command.
 *
 * The hosts stand in resourceconfig.json. The first of them serves the store; no agent command is
 * needed. When ranks of one host fail, the launchers of the others learn it through the store and
 * end theirs.
 */
#ifndef SHOAL_LAUNCH_SAGEMAKER_H
#define SHOAL_LAUNCH_SAGEMAKER_H

#include "launch/launch.h"

/* PyTorch's store and ours; SageMaker keeps the first free on every host. */
#define LAUNCH_SAGEMAKER_MASTER_PORT 7777
#define LAUNCH_SAGEMAKER_STORE_PORT  7778

/* As launch_run, with rank_count ranks (0: one) on each host. resource_config NULL: where SageMaker
 * puts it. Changes options (hosts, part, ports). */
enum shoal_status launch_sagemaker(struct launch_options *options, const char *resource_config,
                                   int *exit_code);

#endif
