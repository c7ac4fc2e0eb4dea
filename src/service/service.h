/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h: training jobs: their operations over HTTP, their state in DIR/service.db, the queue,
 * and the thread that leads each job from its request to its end. docs/training-jobs.md.
 *
 * Life: service_open (state only), http_server_start with service_handler, service_start (jobs run
 * from here on, those that an earlier service left too), http_server_stop, service_close.
 */
#ifndef SHOAL_SERVICE_SERVICE_H
#define SHOAL_SERVICE_SERVICE_H

#include "http/http.h"
#include "logs/logs.h"
#include "s3/store.h"

struct service;

struct service_options {
    const char *directory; /* DIR: service.db, jobs/, logs/ in it */
    struct s3_store *store;
    struct logs *logs; /* of DIR/logs */
    /* Given to jobs, so that SDKs in them reach this service; NULL on a server without keys. */
    const char *key_id, *secret;
};

/* Takes what it needs of the options but for store and logs, which it borrows. Takes the
 * directory's state over. SHOAL_ERR_FORMAT: it is of another version. */
enum shoal_status service_open(const struct service_options *options, struct service **out);
/* For HTTP_SAGEMAKER; its user is the service. */
const struct http_handler *service_handler(void);
/* Jobs run from now on; `address` is the server's, "127.0.0.1:7800". */
enum shoal_status service_start(struct service *service, const char *address);
/* When no request is under way. Running jobs go on. What is being prepared or collected has 10 s to
 * end. False: some of it has not; then nothing is freed, and the process can only end, for the next
 * service to take it up. NULL is allowed. */
bool service_close(struct service *service);

#endif
