/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_facts.h: what an instance is told about its job in /opt/ml/input/config, as the public
 * training toolkit understands it, and the variables and arguments that scripts get of it.
 */
#ifndef SHOAL_JOB_START_FACTS_H
#define SHOAL_JOB_START_FACTS_H

#include <jansson.h>
#include <stdbool.h>

#include "shoal.h"

#define START_MASTER_PORT 7777

struct start_facts {         /* zeroed to start */
    json_t *hyperparameters; /* the user's, decoded */
    json_t *framework;       /* those with sagemaker_ that tell the framework something, decoded */
    json_t *own;             /* those with sagemaker_ that tell the toolkit something, decoded */
    json_t *resources;       /* resourceconfig.json */
    json_t *channels;        /* inputdataconfig.json */
    json_t *distribution_groups, *distribution_hosts; /* where ranks are started together */
    json_t *group_hosts;                              /* of this instance's group */
    /* Texts of these. */
    const char *host, *type, *group, *interface, *program, *submitted, *leader;
    int core_count, accelerator_count;
};

/* Reads the three files in `folder` ("/opt/ml/input/config"); where hyperparameters or channels
 * have no file there are none. SHOAL_ERR_FORMAT and _SYSTEM name the file. */
enum shoal_status start_facts_read(const char *folder, struct start_facts *out);
void start_facts_release(struct start_facts *facts);

/* Whether a hyperparameter of the SDK's is true. */
bool start_facts_enabled(const struct start_facts *facts, const char *name);
/* The number of one, 0 if there is none; `text` of one, "". */
int start_facts_number(const struct start_facts *facts, const char *name);
const char *start_facts_text(const struct start_facts *facts, const char *name);

/* Adds the SM_* variables and their like to an object of texts. */
enum shoal_status start_facts_variables(const struct start_facts *facts, json_t *variables);
/* "--lr", "0.1", ...: a list of texts. */
enum shoal_status start_facts_arguments(const struct start_facts *facts, json_t *arguments);

#endif
