/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment_slurm.c: srun by its variables alone (srun --mpi=none), and Open MPI's mpirun by its
 * own where PMIx cannot be used.
 *
 * Only a step that srun started has SLURM_STEP_NUM_TASKS: in a batch script SLURM_PROCID and
 * SLURM_NTASKS stand too, but there is one process, and it is no rank.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "boot/environment_reader.h"
#include "boot/slurm.h"

/* ---- Slurm's lists --------------------------------------------------------------------------- */

enum shoal_status boot_slurm_first_host(const char *list, char *host, size_t bytes)
{
    size_t used = 0;
    for (const char *at = list; *at != '\0' && *at != ',';) {
        if (*at != '[') {
            if (used + 1 < bytes)
                host[used++] = *at;
            at++;
            continue;
        }
        for (at++; isdigit((unsigned char)*at); at++) {
            if (used + 1 < bytes)
                host[used++] = *at;
        }
        at += strcspn(at, "]");
        if (*at == '\0')
            used = 0; /* no list at all */
        else
            at++;
    }
    host[used] = '\0';
    if (used == 0 || used + 1 >= bytes || strpbrk(host, "[] ") != NULL)
        return base_error(SHOAL_ERR_OPTION, "\"%.100s\" is not a list of Slurm's nodes", list);
    return SHOAL_OK;
}

enum shoal_status boot_slurm_tasks_on_node(const char *list, int node, int *out)
{
    for (const char *at = list; isdigit((unsigned char)*at);) {
        char *end;
        long tasks = strtol(at, &end, 10), times = 1;
        if (end[0] == '(' && end[1] == 'x') {
            times = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (tasks > INT_MAX || times < 1 || times > INT_MAX)
            break;
        if (node < times) {
            *out = (int)tasks;
            return SHOAL_OK;
        }
        node -= (int)times;
        at = *end == ',' ? end + 1 : end;
        if (*end != ',')
            break;
    }
    return base_error(SHOAL_ERR_OPTION, "\"%.100s\" does not tell the tasks of every node", list);
}

/* ---- srun ------------------------------------------------------------------------------------ */

static bool slurm_applies(void)
{
    return boot_variable("SLURM_PROCID") != NULL && boot_variable("SLURM_STEP_NUM_TASKS") != NULL;
}

enum shoal_status boot_slurm_local(struct boot_identity *identity)
{
    const char *tasks = boot_variable("SLURM_STEP_TASKS_PER_NODE");
    int node;
    TRY(boot_variable_int_optional("SLURM_LOCALID", 0, INT_MAX, &identity->local_rank));
    TRY(boot_variable_int_optional("SLURM_NODEID", 0, INT_MAX, &node));
    if (tasks != NULL && node >= 0)
        TRY(boot_slurm_tasks_on_node(tasks, node, &identity->local_size));
    return SHOAL_OK;
}

static enum shoal_status slurm_read(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    TRY(boot_variable_int("SLURM_PROCID", 0, INT_MAX - 1, &identity->rank));
    TRY(boot_variable_int("SLURM_STEP_NUM_TASKS", 1, INT_MAX, &identity->size));
    TRY(boot_slurm_local(identity));
    if (identity->size == 1)
        return SHOAL_OK;
    if (boot_identity_is_placed())
        return boot_identity_place(identity, NULL, 0, NULL);
    const char *nodes = boot_variable("SLURM_STEP_NODELIST");
    const char *job = boot_variable("SLURM_JOB_ID"), *step = boot_variable("SLURM_STEP_ID");
    if (nodes == NULL || job == NULL || step == NULL)
        return base_error(SHOAL_ERR_OPTION,
                          "SLURM_STEP_NODELIST, SLURM_JOB_ID or SLURM_STEP_ID is missing");
    char host[256], text[512];
    TRY(boot_slurm_first_host(nodes, host, sizeof(host)));
    snprintf(text, sizeof(text), "slurm/%.60s/%.60s/%.255s", job, step, host);
    return boot_identity_place(identity, host, boot_port_from_text(text), text);
}

const struct boot_reader boot_reader_slurm = {"slurm", slurm_applies, slurm_read};

/* ---- Open MPI without PMIx ------------------------------------------------------------------- */

static bool openmpi_applies(void)
{
    return boot_variable("OMPI_COMM_WORLD_SIZE") != NULL;
}

/* Ranks of one host can do without an exchange: the job's name gives a port. */
static enum shoal_status openmpi_read(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    TRY(boot_variable_int("OMPI_COMM_WORLD_RANK", 0, INT_MAX - 1, &identity->rank));
    TRY(boot_variable_int("OMPI_COMM_WORLD_SIZE", 1, INT_MAX, &identity->size));
    TRY(boot_variable_int_optional("OMPI_COMM_WORLD_LOCAL_RANK", 0, INT_MAX,
                                   &identity->local_rank));
    TRY(boot_variable_int_optional("OMPI_COMM_WORLD_LOCAL_SIZE", 1, INT_MAX,
                                   &identity->local_size));
    if (identity->size == 1)
        return SHOAL_OK;
    if (boot_identity_is_placed())
        return boot_identity_place(identity, NULL, 0, NULL);
    const char *job = boot_variable("PMIX_NAMESPACE");
    if (job == NULL)
        job = boot_variable("OMPI_MCA_ess_base_jobid");
    if (job == NULL || identity->local_size != identity->size)
        return base_error(SHOAL_ERR_OPTION,
                          "these ranks of Open MPI's mpirun cannot find each other: install PMIx "
                          "(Debian: libpmix2), or give mpirun -x SHOAL_STORE=host:port with rank "
                          "0's host");
    char text[512];
    snprintf(text, sizeof(text), "openmpi/%.255s", job);
    return boot_identity_place(identity, "127.0.0.1", boot_port_from_text(text), text);
}

const struct boot_reader boot_reader_openmpi = {"openmpi", openmpi_applies, openmpi_read};
