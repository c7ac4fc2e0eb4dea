/* SPDX-License-Identifier: Apache-2.0 */
/* headers.c: lines that are said of an object. */
#include "s3/headers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

const char *s3_headers_find(const char *headers, const char *name, size_t *bytes)
{
    size_t name_bytes = strlen(name);
    for (const char *line = headers; *line != '\0';) {
        size_t line_bytes = strcspn(line, "\n");
        if (line_bytes > name_bytes && line[name_bytes] == ':' &&
            strncmp(line, name, name_bytes) == 0) {
            *bytes = line_bytes - name_bytes - 1;
            return line + name_bytes + 1;
        }
        line += line_bytes + (line[line_bytes] == '\n');
    }
    return NULL;
}

bool s3_class_is_known(const char *name)
{
    static const char *const classes[] = {
        S3_CLASS_STANDARD, "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING",
        "GLACIER",         "DEEP_ARCHIVE",       "OUTPOSTS",    "GLACIER_IR", "SNOW",
        "EXPRESS_ONEZONE", "FSX_OPENZFS"};
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(classes[i], name) == 0)
            return true;
    return false;
}

void s3_headers_class(const char *headers, char out[S3_CLASS_BYTES])
{
    size_t bytes = sizeof(S3_CLASS_STANDARD) - 1;
    const char *found = s3_headers_find(headers, S3_CLASS_HEADER, &bytes);
    snprintf(out, S3_CLASS_BYTES, "%.*s", (int)bytes, found != NULL ? found : S3_CLASS_STANDARD);
}

bool s3_header_is_of_storage(const char *name, size_t bytes)
{
    static const char *const names[] = {S3_CLASS_HEADER, "x-amz-server-side-encryption",
                                        "x-amz-server-side-encryption-aws-kms-key-id",
                                        "x-amz-website-redirect-location"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == bytes && strncasecmp(names[i], name, bytes) == 0)
            return true;
    return false;
}

enum s3_code s3_headers_copied(const char *source, const char *own, char **out)
{
    char *at;
    size_t room = strlen(source) + strlen(own) + 1;
    S3_TRY(s3_from_status(base_alloc(room, "a copy's headers", (void **)out)));
    at = *out;
    for (const char *line = source; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");
        bytes += line[bytes] == '\n';
        if (!s3_header_is_of_storage(line, strcspn(line, ":"))) {
            memcpy(at, line, bytes);
            at += bytes;
        }
        line += bytes;
    }
    strcpy(at, own);
    return S3_OK;
}
