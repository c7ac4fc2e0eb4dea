/* SPDX-License-Identifier: Apache-2.0 */
/* protocol_route.c: which bucket, which key, which operation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "s3/protocol_state.h"

const char *s3_call_query(const struct s3_call *call, const char *name)
{
    const char *value = http_request_query(call->request, name);
    return value != NULL ? value : "";
}

bool s3_call_asks(const struct s3_call *call, const char *name)
{
    return http_request_query(call->request, name) != NULL;
}

const char *s3_call_header(const struct s3_call *call, const char *name)
{
    return http_request_header(call->request, name);
}

enum s3_code s3_call_number(const struct s3_call *call, const char *name, int most, int otherwise,
                            int *out)
{
    const char *text = s3_call_query(call, name);
    if (*text == '\0') {
        *out = otherwise;
        return S3_OK;
    }
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*end != '\0' || errno != 0 || number < 0 || number > 2147483647)
        return s3_error(S3_INVALID_ARGUMENT, "Provided %s not an integer or within integer range",
                        name);
    *out = number < most ? (int)number : most;
    return S3_OK;
}

/* -------------------------------------------------------------------------------- bucket and key
 */

/* Where the service's own name begins in a host: behind this many bytes of bucket and a dot. 0: the
 * host names no bucket. */
static size_t bucket_bytes_of(const char *host, size_t bytes)
{
    static const char *const ends[] = {".localhost", ".amazonaws.com"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i]);
        if (bytes <= end || strncasecmp(host + bytes - end, ends[i], end) != 0)
            continue;
        for (size_t at = bytes - end; at > 0; at--) {
            bool is_label = host[at] == '.' && strncasecmp(host + at, ".s3", 3) == 0 &&
                            (host[at + 3] == '.' || host[at + 3] == '-');
            if (is_label)
                return at;
        }
        bool is_plain = i == 0 && strncasecmp(host, "s3.", 3) != 0;
        return is_plain ? bytes - end : 0;
    }
    return 0;
}

static enum s3_code bucket_set(struct s3_call *call, const char *name, size_t bytes)
{
    if (bytes >= sizeof(call->bucket))
        return s3_error(S3_INVALID_BUCKET_NAME, NULL);
    memcpy(call->bucket, name, bytes);
    call->bucket[bytes] = '\0';
    return S3_OK;
}

enum s3_code s3_call_locate(struct s3_call *call)
{
    const char *host = s3_call_header(call, "Host"), *path = http_request_path(call->request) + 1;
    size_t bytes = host != NULL && *host != '[' ? strcspn(host, ":") : 0;
    size_t bucket = bucket_bytes_of(host, bytes);
    if (bucket > 0) {
        call->key = path;
        return bucket_set(call, host, bucket);
    }
    bucket = strcspn(path, "/");
    call->key = path[bucket] == '/' ? path + bucket + 1 : "";
    return bucket_set(call, path, bucket);
}

/* ------------------------------------------------------------------------------------- operation
 */

enum level { SERVICE, BUCKET, OBJECT };

struct route {
    const char *method;
    enum level level;
    const char *query;  /* that must be there; NULL: none of those below */
    const char *header; /* the same */
    struct s3_operation operation;
};

/* In the order in which they are tried. */
static const struct route routes[] = {
    {"GET", SERVICE, NULL, NULL, {"ListBuckets", S3_BODY_NONE, NULL, s3_buckets_list, NULL}},
    {"PUT",
     BUCKET,
     NULL,
     NULL,
     {"CreateBucket", S3_BODY_COLLECT, NULL, s3_bucket_put, s3_bucket_created}},
    {"HEAD", BUCKET, NULL, NULL, {"HeadBucket", S3_BODY_NONE, NULL, s3_bucket_head, NULL}},
    {"DELETE",
     BUCKET,
     NULL,
     NULL,
     {"DeleteBucket", S3_BODY_NONE, NULL, s3_bucket_remove, s3_no_content}},
    {"GET",
     BUCKET,
     "location",
     NULL,
     {"GetBucketLocation", S3_BODY_NONE, NULL, s3_bucket_location, NULL}},
    {"GET",
     BUCKET,
     "versioning",
     NULL,
     {"GetBucketVersioning", S3_BODY_NONE, NULL, s3_bucket_versioning, NULL}},
    {"GET", BUCKET, "acl", NULL, {"GetBucketAcl", S3_BODY_NONE, NULL, s3_bucket_acl, NULL}},
    {"GET",
     BUCKET,
     "versions",
     NULL,
     {"ListObjectVersions", S3_BODY_NONE, NULL, s3_list_reply_versions, NULL}},
    {"GET",
     BUCKET,
     "uploads",
     NULL,
     {"ListMultipartUploads", S3_BODY_NONE, NULL, s3_uploads_list, NULL}},
    {"GET",
     BUCKET,
     "list-type",
     NULL,
     {"ListObjectsV2", S3_BODY_NONE, NULL, s3_list_reply_v2, NULL}},
    {"GET", BUCKET, NULL, NULL, {"ListObjects", S3_BODY_NONE, NULL, s3_list_reply_v1, NULL}},
    {"POST",
     BUCKET,
     "delete",
     NULL,
     {"DeleteObjects", S3_BODY_COLLECT, NULL, s3_objects_delete, s3_objects_deleted}},
    {"GET", OBJECT, "acl", NULL, {"GetObjectAcl", S3_BODY_NONE, NULL, s3_object_acl, NULL}},
    {"GET",
     OBJECT,
     "attributes",
     NULL,
     {"GetObjectAttributes", S3_BODY_NONE, NULL, s3_attributes_get, NULL}},
    {"GET", OBJECT, "tagging", NULL, {"GetObjectTagging", S3_BODY_NONE, NULL, s3_tags_get, NULL}},
    {"PUT",
     OBJECT,
     "tagging",
     NULL,
     {"PutObjectTagging", S3_BODY_COLLECT, NULL, s3_tags_put, s3_ok}},
    {"DELETE",
     OBJECT,
     "tagging",
     NULL,
     {"DeleteObjectTagging", S3_BODY_NONE, NULL, s3_tags_delete, s3_no_content}},
    {"POST",
     OBJECT,
     "uploads",
     NULL,
     {"CreateMultipartUpload", S3_BODY_NONE, NULL, s3_upload_begin, s3_upload_begun}},
    {"PUT",
     OBJECT,
     "uploadId",
     "x-amz-copy-source",
     {"UploadPartCopy", S3_BODY_NONE, NULL, s3_part_copy, s3_part_copied}},
    {"PUT",
     OBJECT,
     "uploadId",
     NULL,
     {"UploadPart", S3_BODY_STREAM, s3_part_put_begin, s3_put_complete, s3_put_done}},
    {"GET", OBJECT, "uploadId", NULL, {"ListParts", S3_BODY_NONE, NULL, s3_parts_list, NULL}},
    {"POST",
     OBJECT,
     "uploadId",
     NULL,
     {"CompleteMultipartUpload", S3_BODY_COLLECT, NULL, s3_upload_end, s3_upload_ended}},
    {"DELETE",
     OBJECT,
     "uploadId",
     NULL,
     {"AbortMultipartUpload", S3_BODY_NONE, NULL, s3_upload_give_up, s3_no_content}},
    {"PUT",
     OBJECT,
     NULL,
     "x-amz-copy-source",
     {"CopyObject", S3_BODY_NONE, NULL, s3_copy_object, s3_copied}},
    {"PUT",
     OBJECT,
     NULL,
     NULL,
     {"PutObject", S3_BODY_STREAM, s3_put_object_begin, s3_put_complete, s3_put_done}},
    {"GET", OBJECT, NULL, NULL, {"GetObject", S3_BODY_NONE, NULL, s3_get_reply, NULL}},
    {"HEAD", OBJECT, NULL, NULL, {"HeadObject", S3_BODY_NONE, NULL, s3_get_reply, NULL}},
    {"DELETE",
     OBJECT,
     NULL,
     NULL,
     {"DeleteObject", S3_BODY_NONE, NULL, s3_delete_object, s3_no_content}},
};

/* Operations that are not here, by the parameter that makes a request one of them. A '*' in front
 * of a name is Get, Put or Delete, by the method. Rows with a method come before those without, and
 * a list is meant where none of those that it lists is named. */
static const struct other {
    const char *method; /* NULL: any */
    enum level level;
    const char *query, *name;
} others[] = {
    {NULL, BUCKET, "abac", "*BucketAbac"},
    {NULL, BUCKET, "accelerate", "*BucketAccelerateConfiguration"},
    {NULL, BUCKET, "acl", "*BucketAcl"},
    {"GET", BUCKET, "analytics", "ListBucketAnalyticsConfigurations"},
    {NULL, BUCKET, "analytics", "*BucketAnalyticsConfiguration"},
    {NULL, BUCKET, "cors", "*BucketCors"},
    {NULL, BUCKET, "encryption", "*BucketEncryption"},
    {"GET", BUCKET, "intelligent-tiering", "ListBucketIntelligentTieringConfigurations"},
    {NULL, BUCKET, "intelligent-tiering", "*BucketIntelligentTieringConfiguration"},
    {"GET", BUCKET, "inventory", "ListBucketInventoryConfigurations"},
    {NULL, BUCKET, "inventory", "*BucketInventoryConfiguration"},
    {"DELETE", BUCKET, "lifecycle", "DeleteBucketLifecycle"},
    {NULL, BUCKET, "lifecycle", "*BucketLifecycleConfiguration"},
    {NULL, BUCKET, "logging", "*BucketLogging"},
    {NULL, BUCKET, "metadataAnnotationTable", "UpdateBucketMetadataAnnotationTableConfiguration"},
    {"POST", BUCKET, "metadataConfiguration", "CreateBucketMetadataConfiguration"},
    {NULL, BUCKET, "metadataConfiguration", "*BucketMetadataConfiguration"},
    {NULL, BUCKET, "metadataInventoryTable", "UpdateBucketMetadataInventoryTableConfiguration"},
    {NULL, BUCKET, "metadataJournalTable", "UpdateBucketMetadataJournalTableConfiguration"},
    {"POST", BUCKET, "metadataTable", "CreateBucketMetadataTableConfiguration"},
    {NULL, BUCKET, "metadataTable", "*BucketMetadataTableConfiguration"},
    {"GET", BUCKET, "metrics", "ListBucketMetricsConfigurations"},
    {NULL, BUCKET, "metrics", "*BucketMetricsConfiguration"},
    {NULL, BUCKET, "notification", "*BucketNotificationConfiguration"},
    {NULL, BUCKET, "object-lock", "*ObjectLockConfiguration"},
    {NULL, BUCKET, "ownershipControls", "*BucketOwnershipControls"},
    {NULL, BUCKET, "policy", "*BucketPolicy"},
    {NULL, BUCKET, "policyStatus", "*BucketPolicyStatus"},
    {NULL, BUCKET, "publicAccessBlock", "*PublicAccessBlock"},
    {NULL, BUCKET, "replication", "*BucketReplication"},
    {NULL, BUCKET, "requestPayment", "*BucketRequestPayment"},
    {NULL, BUCKET, "session", "CreateSession"},
    {NULL, BUCKET, "tagging", "*BucketTagging"},
    {NULL, BUCKET, "versioning", "*BucketVersioning"},
    {NULL, BUCKET, "website", "*BucketWebsite"},
    {NULL, OBJECT, "acl", "*ObjectAcl"},
    {"GET", OBJECT, "annotation", "ListObjectAnnotations"},
    {NULL, OBJECT, "annotation", "*ObjectAnnotation"},
    {NULL, OBJECT, "encryption", "UpdateObjectEncryption"},
    {NULL, OBJECT, "legal-hold", "*ObjectLegalHold"},
    {NULL, OBJECT, "renameObject", "RenameObject"},
    {NULL, OBJECT, "restore", "RestoreObject"},
    {NULL, OBJECT, "retention", "*ObjectRetention"},
    {NULL, OBJECT, "select", "SelectObjectContent"},
    {NULL, OBJECT, "torrent", "*ObjectTorrent"},
};
#define OTHER_COUNT (sizeof(others) / sizeof(others[0]))

/* Headers by which a client means something else than the operation does without them. One that
 * is not there is refused: done without, an append replaces the object, and what should be locked
 * can be deleted. */
static const char *const other_headers[] = {
    "x-amz-bucket-object-lock-enabled",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-write-offset-bytes",
};

static enum level level_of(const struct s3_call *call)
{
    if (call->bucket[0] == '\0')
        return SERVICE;
    return call->key[0] == '\0' ? BUCKET : OBJECT;
}

/* Whether the request has a parameter that makes it an operation of its own, at whatever level: it
 * is none of those without. */
static bool is_special(const struct s3_call *call)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (routes[i].query != NULL && s3_call_asks(call, routes[i].query))
            return true;
    for (size_t i = 0; i < OTHER_COUNT; i++)
        if (s3_call_asks(call, others[i].query))
            return true;
    return false;
}

static const struct other *other_of(const struct s3_call *call, enum level level)
{
    const char *method = http_request_method(call->request);
    bool names_one = s3_call_asks(call, "id") || s3_call_asks(call, "annotationName");
    for (size_t i = 0; i < OTHER_COUNT; i++) {
        const struct other *other = &others[i];
        bool is_method = other->method == NULL || strcmp(other->method, method) == 0;
        bool is_other = names_one && strncmp(other->name, "List", 4) == 0;
        if (is_method && !is_other && other->level == level && s3_call_asks(call, other->query))
            return other;
    }
    return NULL;
}

static const char *verb_of(const char *method)
{
    static const char *const verbs[][2] = {{"GET", "Get"}, {"PUT", "Put"}, {"DELETE", "Delete"}};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i][0], method) == 0)
            return verbs[i][1];
    return NULL;
}

static enum s3_code not_there(const struct s3_call *call, enum level level, bool is_plain)
{
    const char *method = http_request_method(call->request), *verb = verb_of(method);
    const struct other *other = other_of(call, level);
    if (is_plain)
        return s3_error(S3_METHOD_NOT_ALLOWED, NULL);
    if (other != NULL && other->name[0] != '*')
        return s3_error(S3_NOT_IMPLEMENTED, "The operation %s is not implemented here.",
                        other->name);
    if (other != NULL && verb != NULL)
        return s3_error(S3_NOT_IMPLEMENTED, "The operation %s%s is not implemented here.", verb,
                        other->name + 1);
    return s3_error(S3_NOT_IMPLEMENTED,
                    "The method %s with these parameters is not implemented here.", method);
}

static bool fits(const struct s3_call *call, const struct route *route, enum level level,
                 bool is_plain)
{
    if (route->level != level || strcmp(route->method, http_request_method(call->request)) != 0)
        return false;
    if (route->query == NULL ? !is_plain : !s3_call_asks(call, route->query))
        return false;
    return route->header == NULL || s3_call_header(call, route->header) != NULL;
}

static enum s3_code headers_check(const struct s3_call *call)
{
    for (size_t i = 0; i < sizeof(other_headers) / sizeof(other_headers[0]); i++) {
        const char *value = s3_call_header(call, other_headers[i]);
        if (value != NULL && strcasecmp(value, "false") != 0)
            return s3_error(S3_NOT_IMPLEMENTED, "The header %s is not implemented here.",
                            other_headers[i]);
    }
    return S3_OK;
}

enum s3_code s3_call_route(struct s3_call *call)
{
    enum level level = level_of(call);
    bool is_plain = !is_special(call);
    const char *version = s3_call_query(call, "versionId");
    if (*version != '\0' && strcmp(version, "null") != 0)
        return s3_error(S3_INVALID_ARGUMENT, "Invalid version id specified");
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (fits(call, &routes[i], level, is_plain)) {
            call->operation = &routes[i].operation;
            return headers_check(call);
        }
    return not_there(call, level, is_plain);
}
