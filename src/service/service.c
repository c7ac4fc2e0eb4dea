/* SPDX-License-Identifier: Apache-2.0 */
/* service.c: opening and closing. */
#include "service/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "service/record.h"
#include "service/service_state.h"
#include "service/step.h"

static enum shoal_status folder_make(const char *directory, const char *name)
{
    char path[SERVICE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't make the directory %s", path);
    return SHOAL_OK;
}

static enum shoal_status database_open(struct service *service)
{
    char path[SERVICE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/service.db", service->directory);
    TRY(sql_readers_init(&service->readers, path, &service_schema));
    TRY(sql_database_open(path, &service_schema, true, &service->writer.database));
    return sql_writer_start(&service->writer, NULL);
}

/* What the machine has, and what names of types and images stand for on it. */
static enum shoal_status tables_load(struct service *service)
{
    char path[SERVICE_PATH_BYTES], folder[SERVICE_PATH_BYTES];
    job_machine_look(&service->machine);
    snprintf(path, sizeof(path), "%s/instances.conf", service->directory);
    TRY(job_types_load(path, &service->types));
    snprintf(path, sizeof(path), "%s/images.conf", service->directory);
    snprintf(folder, sizeof(folder), "%s/images", service->directory);
    return job_images_load(path, folder, &service->images);
}

static enum shoal_status parts_open(struct service *service, const struct service_options *options)
{
    if (strlen(options->directory) >= sizeof(service->directory))
        return base_error(SHOAL_ERR_ARGUMENT, "the directory's name is too long");
    snprintf(service->directory, sizeof(service->directory), "%s", options->directory);
    snprintf(service->reserve, sizeof(service->reserve), "%s/reserve", service->directory);
    service_reserve_take(service);
    service->store = options->store;
    service->logs = options->logs;
    if (options->key_id != NULL) {
        TRY(base_strdup(options->key_id, "a key", &service->key_id));
        TRY(base_strdup(options->secret, "a key", &service->secret));
    }
    TRY(folder_make(service->directory, "jobs"));
    TRY(job_validator_create(&job_model_sagemaker, &service->validator));
    TRY(tables_load(service));
    TRY(service_watch_create(service, &service->watch));
    return database_open(service);
}

enum shoal_status service_open(const struct service_options *options, struct service **out)
{
    struct service *service;
    TRY(BASE_NEW(&service, "the job service"));
    enum shoal_status status = parts_open(service, options);
    if (status != SHOAL_OK) {
        char text[BASE_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", base_error_text());
        service_close(service);
        return base_error(status, "%s", text);
    }
    *out = service;
    return SHOAL_OK;
}

enum shoal_status service_start(struct service *service, const char *address)
{
    TRY(base_strdup(address, "an address", &service->address));
    return service_watch_start(service->watch);
}

bool service_close(struct service *service)
{
    if (service == NULL)
        return true;
    if (!service_watch_free(service->watch))
        return false;
    sql_writer_stop(&service->writer);
    sql_readers_release(&service->readers);
    job_validator_free(service->validator);
    job_types_free(service->types);
    job_images_free(service->images);
    base_free(service->address);
    base_free(service->key_id);
    base_free(service->secret);
    base_free(service);
    return true;
}
