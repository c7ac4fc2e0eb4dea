/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h: a few threads for what blocks on the disk: syncing, removing and joining files. */
#ifndef SHOAL_S3_WORKERS_H
#define SHOAL_S3_WORKERS_H

#include <pthread.h>
#include <stdbool.h>

#include "shoal.h"

#define S3_WORKERS 8

struct s3_store;

/* Embedded first in what a task needs; run owns it. */
struct s3_task {
    void (*run)(struct s3_task *task);
    struct s3_task *next;
};

struct s3_workers {
    struct s3_store *store;
    pthread_t threads[S3_WORKERS];
    int count;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct s3_task *first, **last;
    bool stops;
};

enum shoal_status s3_workers_start(struct s3_workers *workers, struct s3_store *store);
/* When nothing is under way any more. Safe if the start failed. */
void s3_workers_stop(struct s3_workers *workers);
void s3_workers_submit(struct s3_workers *workers, struct s3_task *task);

#endif
