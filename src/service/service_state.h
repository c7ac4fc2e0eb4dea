/* SPDX-License-Identifier: Apache-2.0 */
/* service_state.h: what a service is made of; for this room only. */
#ifndef SHOAL_SERVICE_SERVICE_STATE_H
#define SHOAL_SERVICE_SERVICE_STATE_H

#include "job/images.h"
#include "job/types.h"
#include "job/validate.h"
#include "service/service.h"
#include "service/watch.h"
#include "sql/readers.h"
#include "sql/writer.h"

#define SERVICE_PATH_BYTES      4096
#define SERVICE_DIRECTORY_BYTES 3072

struct service {
    char directory[SERVICE_DIRECTORY_BYTES];
    char reserve[SERVICE_PATH_BYTES]; /* room on the disk for what is said of jobs */
    char *address;
    char *key_id, *secret; /* NULL: none */
    struct s3_store *store;
    struct logs *logs;
    struct job_validator *validator;
    struct job_share machine;
    struct job_types *types;
    struct job_images *images;
    struct sql_writer writer;
    struct sql_readers readers;
    struct service_watch *watch;
};

#endif
