/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c: a queue, and threads that take from it one by one. */
#include "s3/workers.h"

#include <string.h>

#include "base/status.h"
#include "s3/store_state.h"

static struct s3_task *task_take(struct s3_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (workers->first == NULL && !workers->stops)
        pthread_cond_wait(&workers->arrived, &workers->lock);
    struct s3_task *task = workers->first;
    if (task != NULL) {
        workers->first = task->next;
        if (workers->first == NULL)
            workers->last = &workers->first;
    }
    pthread_mutex_unlock(&workers->lock);
    return task;
}

static void *worker_main(void *user)
{
    struct s3_workers *workers = user;
    struct s3_task *task;
    while ((task = task_take(workers)) != NULL) {
        task->run(task);
        s3_store_left(workers->store);
    }
    return NULL;
}

enum shoal_status s3_workers_start(struct s3_workers *workers, struct s3_store *store)
{
    workers->store = store;
    workers->last = &workers->first;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->arrived, NULL);
    for (; workers->count < S3_WORKERS; workers->count++) {
        int status = pthread_create(&workers->threads[workers->count], NULL, worker_main, workers);
        if (status != 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, status, "no thread for the files of objects");
    }
    return SHOAL_OK;
}

void s3_workers_stop(struct s3_workers *workers)
{
    if (workers->count == 0)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stops = true;
    pthread_cond_broadcast(&workers->arrived);
    pthread_mutex_unlock(&workers->lock);
    while (workers->count > 0)
        pthread_join(workers->threads[--workers->count], NULL);
}

void s3_workers_submit(struct s3_workers *workers, struct s3_task *task)
{
    task->next = NULL;
    s3_store_entered(workers->store);
    pthread_mutex_lock(&workers->lock);
    *workers->last = task;
    workers->last = &task->next;
    pthread_cond_signal(&workers->arrived);
    pthread_mutex_unlock(&workers->lock);
}
