/* SPDX-License-Identifier: Apache-2.0 */
/* code.c: sourcedir.tar.gz, from its bucket into the instances. */
#include "service/code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "channel/archive.h"
#include "job/instance.h"
#include "job/start.h"
#include "s3/name.h"
#include "service/files.h"

/* For reading, from its begin. */
static enum shoal_status archive_open(struct s3_store *store, const char *uri, int *fd)
{
    char bucket[S3_BUCKET_NAME_MAX + 1];
    struct s3_object object;
    const char *rest = uri + strlen("s3://"), *key = strchr(rest, '/');
    if (key == NULL || (size_t)(key - rest) >= sizeof(bucket))
        return base_error(SHOAL_ERR_ARGUMENT, "ClientError: %s names no object", uri);
    snprintf(bucket, sizeof(bucket), "%.*s", (int)(key - rest), rest);
    if (s3_object_get(store, bucket, key + 1, NULL, &object, fd) != S3_OK)
        return base_error_context(SHOAL_ERR_ARGUMENT, "ClientError: the job's code, %s", uri);
    s3_object_release(&object);
    return SHOAL_OK;
}

static enum shoal_status unpack_one(int archive_fd, const char *folder, int index)
{
    char path[SERVICE_FILE_BYTES], host[JOB_HOST_BYTES];
    snprintf(path, sizeof(path), "%s/%s/ml/code", folder, job_host_name(index, host));
    TRY(service_folder_make(path));
    int folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0 || lseek(archive_fd, 0, SEEK_SET) != 0) {
        int number = errno;
        if (folder_fd >= 0)
            close(folder_fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, number, "opening %s", path);
    }
    enum shoal_status status = channel_archive_extract(archive_fd, folder_fd, NULL, NULL);
    close(folder_fd);
    return status;
}

enum shoal_status service_code_unpack(const json_t *request, struct s3_store *store,
                                      const char *folder, int count)
{
    char uri[JOB_START_URI_BYTES];
    int fd;
    if (!job_start_code(request, uri, sizeof(uri)))
        return SHOAL_OK;
    TRY(archive_open(store, uri, &fd));
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < count && status == SHOAL_OK; i++)
        status = unpack_one(fd, folder, i);
    close(fd);
    if (status == SHOAL_OK || status == SHOAL_ERR_SYSTEM)
        return status;
    return base_error_context(SHOAL_ERR_ARGUMENT, "ClientError: unpacking the job's code, %s", uri);
}
