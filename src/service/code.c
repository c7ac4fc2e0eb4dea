/* SPDX-License-Identifier: Apache-2.0 */
/* code.c: sourcedir.tar.gz, from its bucket into the instances. */
#include "service/code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"
#include "channel/archive.h"
#include "channel/bucket.h"
#include "job/start.h"
#include "service/files.h"

static enum shoal_status unpack_one(int archive_fd, const char *folder, const char *host)
{
    char path[SERVICE_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/%s/ml/code", folder, host);
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

static enum shoal_status unpack(const struct channel_job *job, const char *text)
{
    struct channel_uri uri;
    int64_t bytes, modified_ms;
    int fd;
    TRY(channel_uri_parse(text, &uri));
    TRY(channel_bucket_open(job, &uri, &fd, &bytes, &modified_ms));
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < job->host_count && status == SHOAL_OK; i++)
        status = unpack_one(fd, job->folder, job->hosts[i].name);
    close(fd);
    return status;
}

enum shoal_status service_code_unpack(const struct channel_job *job)
{
    char text[JOB_START_URI_BYTES];
    if (!job_start_code(job->request, text, sizeof(text)))
        return SHOAL_OK;
    enum shoal_status status = unpack(job, text);
    if (status == SHOAL_OK || status == SHOAL_ERR_SYSTEM || status == SHOAL_ERR_MEMORY)
        return status;
    return base_error_context(SHOAL_ERR_ARGUMENT, "ClientError: The job's code, %s", text);
}
