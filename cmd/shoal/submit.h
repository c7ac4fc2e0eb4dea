/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h: what `shoal submit` is asked for, and the parts of it. */
#ifndef SHOAL_CMD_SUBMIT_H
#define SHOAL_CMD_SUBMIT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "job_client.h"
#include "s3/client.h"
#include "shoal.h"

#define SUBMIT_LIST_MAX   100
#define SUBMIT_NAME_BYTES 64
#define SUBMIT_KEY_BYTES  256

struct submit_list { /* words of the command line */
    const char *items[SUBMIT_LIST_MAX];
    int count;
};

struct submit {
    struct job_client client;
    const char *path;  /* the script, or the folder with it */
    const char *entry; /* the script's name in the folder; NULL: train.py */
    const char *name, *image, *instance_type, *output, *checkpoints, *distribution;
    struct submit_list data, hyperparameters, environment, metrics, arguments;
    long instances, processes, priority, keep_alive_s;
    int64_t max_runtime_ms;
    bool follows, wants_json, wants_help;
    char job[SUBMIT_NAME_BYTES];
    char bucket[S3_BUCKET_NAME_MAX + 1]; /* of the output, the source and the data */
    char script[NAME_MAX + 1];
    char source_key[SUBMIT_KEY_BYTES]; /* of its archive */
    int folder_fd;                     /* that the script is in */
    bool is_folder;                    /* all of it is the source */
};

/* Finds the script and says where things will be, but sends nothing. SHOAL_ERR_ARGUMENT. */
enum shoal_status submit_find(struct submit *submit);
/* Packs the source and stores it, and the folders of --data, with a line on a terminal. */
enum shoal_status submit_upload(struct submit *submit);
/* "train" of "train=s3://bucket/key", and what is behind the '='; "training" where no name is. */
enum shoal_status submit_data_split(const char *word, char name[65], const char **what);
/* Whether it is the address of a bucket rather than a folder of this machine. */
bool submit_is_address(const char *what);
/* The prefix under which a channel's folder is stored. */
void submit_data_prefix(const struct submit *submit, const char *channel, char *out, size_t bytes);

/* The body of CreateTrainingJob; the caller releases it. */
enum shoal_status submit_request(const struct submit *submit, json_t **out);

#endif
