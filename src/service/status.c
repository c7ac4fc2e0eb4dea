/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: one row per secondary status. */
#include "service/status.h"

static const struct {
    const char *name, *message, *status;
    bool ends;
} rows[SERVICE_SECONDARY_COUNT] = {
    [SERVICE_STARTING] = {"Starting", "Starting the training job", SERVICE_IN_PROGRESS, false},
    [SERVICE_PENDING] = {"Pending", "Waiting until all instances fit on this machine",
                         SERVICE_IN_PROGRESS, false},
    [SERVICE_PREPARING_INSTANCES] = {"Starting", "Preparing the instances for training",
                                     SERVICE_IN_PROGRESS, false},
    [SERVICE_DOWNLOADING] = {"Downloading", "Downloading input data", SERVICE_IN_PROGRESS, false},
    [SERVICE_TRAINING] = {"Training", "Training image download completed. Training in progress.",
                          SERVICE_IN_PROGRESS, false},
    [SERVICE_UPLOADING] = {"Uploading", "Uploading generated training model", SERVICE_IN_PROGRESS,
                           false},
    [SERVICE_INTERRUPTED] = {"Interrupted", "The instances were interrupted; waiting for new ones",
                             SERVICE_IN_PROGRESS, false},
    [SERVICE_RESTARTING] = {"Restarting", "Restarting the training job after an internal error",
                            SERVICE_IN_PROGRESS, false},
    [SERVICE_STOPPING_NOW] = {"Stopping", "Stopping the training job", SERVICE_STOPPING, false},
    [SERVICE_COMPLETED] = {"Completed", "Training job completed", "Completed", true},
    [SERVICE_FAILED] = {"Failed", "Training job failed", "Failed", true},
    [SERVICE_STOPPED] = {"Stopped", "Training job stopped", "Stopped", true},
    [SERVICE_MAX_RUNTIME] = {"MaxRuntimeExceeded",
                             "Training job runtime exceeded MaxRuntimeInSeconds provided",
                             "Stopped", true},
    [SERVICE_MAX_WAIT] = {"MaxWaitTimeExceeded",
                          "Training job wait time exceeded MaxWaitTimeInSeconds provided",
                          "Stopped", true},
    [SERVICE_MAX_PENDING] = {"Stopped",
                             "Training job pending time exceeded MaxPendingTimeInSeconds provided",
                             "Stopped", true},
};

const char *service_secondary_name(enum service_secondary which)
{
    return rows[which].name;
}

const char *service_secondary_message(enum service_secondary which)
{
    return rows[which].message;
}

const char *service_secondary_status(enum service_secondary which)
{
    return rows[which].status;
}

bool service_secondary_ends(enum service_secondary which)
{
    return rows[which].ends;
}
