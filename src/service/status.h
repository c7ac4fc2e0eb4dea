/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.h: where a training job is, for its user (statuses and messages, in the words of the
 * public API) and for the service (phases).
 *
 *   phase        secondary statuses                          what a service that starts does
 *   WAITING      Starting, Pending, Interrupted, Restarting  queues it
 *   PREPARING    Starting, Downloading                       prepares it again, or finds it running
 *   RUNNING      Training, Stopping                          waits for its supervisor
 *   COLLECTING   Uploading                                   collects it again
 *   ENDED        Completed, Failed, Stopped, Max…Exceeded    nothing
 */
#ifndef SHOAL_SERVICE_STATUS_H
#define SHOAL_SERVICE_STATUS_H

#include <stdbool.h>

/* As in the database. */
enum service_phase {
    SERVICE_WAITING = 0,
    SERVICE_PREPARING = 1,
    SERVICE_RUNNING = 2,
    SERVICE_COLLECTING = 3,
    SERVICE_ENDED = 4
};

/* TrainingJobStatus. */
#define SERVICE_IN_PROGRESS "InProgress"
#define SERVICE_STOPPING    "Stopping"

enum service_secondary {
    SERVICE_STARTING,
    SERVICE_PENDING,
    SERVICE_PREPARING_INSTANCES, /* Starting, with another message */
    SERVICE_DOWNLOADING,
    SERVICE_TRAINING,
    SERVICE_UPLOADING,
    SERVICE_INTERRUPTED,
    SERVICE_RESTARTING,
    SERVICE_STOPPING_NOW,
    SERVICE_COMPLETED,
    SERVICE_FAILED,
    SERVICE_STOPPED,
    SERVICE_MAX_RUNTIME,
    SERVICE_MAX_WAIT,
    SERVICE_MAX_PENDING, /* Stopped, with another message */
    SERVICE_SECONDARY_COUNT
};

/* SecondaryStatus, its StatusMessage, and the TrainingJobStatus that goes with it. */
const char *service_secondary_name(enum service_secondary which);
const char *service_secondary_message(enum service_secondary which);
const char *service_secondary_status(enum service_secondary which);
/* Whether nothing comes after it. */
bool service_secondary_ends(enum service_secondary which);

#endif
