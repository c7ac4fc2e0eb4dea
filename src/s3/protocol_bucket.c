/* SPDX-License-Identifier: Apache-2.0 */
/* protocol_bucket.c: buckets, lists of objects and uploads, and deleting many objects at once. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/protocol_state.h"

/* ---------------------------------------------------------------------------------------- buckets
 */

enum s3_code s3_buckets_list(struct s3_call *call)
{
    struct s3_bucket *buckets;
    struct s3_xml xml;
    size_t count;
    const char *prefix = s3_call_query(call, "prefix");
    S3_TRY(s3_bucket_list(call->store, &buckets, &count));
    s3_xml_begin(&xml, "ListAllMyBucketsResult");
    s3_owner_write(&xml);
    s3_xml_open(&xml, "Buckets");
    for (size_t i = 0; i < count; i++) {
        if (strncmp(buckets[i].name, prefix, strlen(prefix)) != 0)
            continue;
        s3_xml_open(&xml, "Bucket");
        s3_xml_text(&xml, "Name", buckets[i].name);
        s3_xml_time(&xml, "CreationDate", buckets[i].created_ms);
        s3_xml_close(&xml, "Bucket");
    }
    s3_xml_close(&xml, "Buckets");
    base_free(buckets);
    return s3_reply_xml(call, &xml, "ListAllMyBucketsResult");
}

enum s3_code s3_bucket_put(struct s3_call *call)
{
    char region[32];
    size_t bytes;
    const void *body = http_body(call->request, &bytes);
    S3_TRY(s3_bucket_body_read(body, bytes, region)); /* any region is this machine */
    s3_call_wait(call);
    s3_bucket_create(call->store, call->bucket, s3_call_done, call);
    return S3_OK;
}

enum s3_code s3_bucket_created(struct s3_call *call)
{
    http_reply_header_format(call->request, "Location", "/%s", call->bucket);
    return s3_reply_empty(call, 200);
}

enum s3_code s3_bucket_head(struct s3_call *call)
{
    struct s3_bucket bucket;
    S3_TRY(s3_bucket_find(call->store, call->bucket, &bucket));
    s3_reply_header(call, "x-amz-bucket-region", http_request_region(call->request));
    return s3_reply_empty(call, 200);
}

enum s3_code s3_bucket_remove(struct s3_call *call)
{
    s3_call_wait(call);
    s3_bucket_delete(call->store, call->bucket, s3_call_done, call);
    return S3_OK;
}

/* A bucket is wherever it is asked for; us-east-1 is the empty constraint. */
enum s3_code s3_bucket_location(struct s3_call *call)
{
    struct s3_bucket bucket;
    struct s3_xml xml;
    const char *region = http_request_region(call->request);
    S3_TRY(s3_bucket_find(call->store, call->bucket, &bucket));
    s3_xml_begin(&xml, "LocationConstraint");
    if (strcmp(region, "us-east-1") != 0)
        s3_xml_content(&xml, region);
    return s3_reply_xml(call, &xml, "LocationConstraint");
}

enum s3_code s3_bucket_versioning(struct s3_call *call)
{
    struct s3_bucket bucket;
    struct s3_xml xml;
    S3_TRY(s3_bucket_find(call->store, call->bucket, &bucket));
    s3_xml_begin(&xml, "VersioningConfiguration"); /* empty: never switched on */
    return s3_reply_xml(call, &xml, "VersioningConfiguration");
}

/* ------------------------------------------------------------------------------- lists of objects
 */

struct listing {
    struct s3_list_options options;
    struct s3_list page;
    bool is_encoded, with_owner, with_versions;
    char after[S3_KEY_BYTES_MAX + 1];
};

static enum s3_code encoding_of(struct s3_call *call, bool *is_encoded)
{
    const char *encoding = s3_call_query(call, "encoding-type");
    *is_encoded = strcmp(encoding, "url") == 0;
    if (*encoding != '\0' && !*is_encoded)
        return s3_error(S3_INVALID_ARGUMENT, "Invalid Encoding Method specified in Request");
    return S3_OK;
}

static enum s3_code listing_begin(struct s3_call *call, struct listing *out)
{
    *out = (struct listing){.options = {.bucket = call->bucket,
                                        .prefix = s3_call_query(call, "prefix"),
                                        .delimiter = s3_call_query(call, "delimiter")}};
    S3_TRY(encoding_of(call, &out->is_encoded));
    return s3_call_number(call, "max-keys", S3_LIST_KEYS_MAX, S3_LIST_KEYS_MAX,
                          &out->options.limit);
}

static void entry_write(struct s3_xml *xml, const struct listing *listing,
                        const struct s3_list_entry *entry)
{
    const char *name = listing->with_versions ? "Version" : "Contents";
    s3_xml_open(xml, name);
    s3_xml_key(xml, "Key", entry->key, listing->is_encoded);
    if (listing->with_versions) {
        s3_xml_text(xml, "VersionId", "null");
        s3_xml_bool(xml, "IsLatest", true);
    }
    s3_xml_time(xml, "LastModified", entry->modified_ms);
    s3_xml_etag(xml, entry->etag);
    if (entry->checksum.algorithm != S3_NO_CHECKSUM) {
        s3_xml_text(xml, "ChecksumAlgorithm", s3_algorithm_name(entry->checksum.algorithm));
        s3_xml_text(xml, "ChecksumType",
                    s3_checksum_is_composite(&entry->checksum) ? "COMPOSITE" : "FULL_OBJECT");
    }
    s3_xml_number(xml, "Size", entry->bytes);
    if (listing->with_owner)
        s3_owner_write(xml);
    s3_xml_text(xml, "StorageClass", entry->storage_class);
    s3_xml_close(xml, name);
}

static void entries_write(struct s3_xml *xml, const struct listing *listing)
{
    for (int i = 0; i < listing->page.count; i++)
        if (!listing->page.entries[i].is_prefix)
            entry_write(xml, listing, &listing->page.entries[i]);
    for (int i = 0; i < listing->page.count; i++)
        if (listing->page.entries[i].is_prefix) {
            s3_xml_open(xml, "CommonPrefixes");
            s3_xml_key(xml, "Prefix", listing->page.entries[i].key, listing->is_encoded);
            s3_xml_close(xml, "CommonPrefixes");
        }
}

static void head_write(struct s3_xml *xml, const struct listing *listing, const char *root)
{
    s3_xml_begin(xml, root);
    s3_xml_text(xml, "Name", listing->options.bucket);
    s3_xml_key(xml, "Prefix", listing->options.prefix, listing->is_encoded);
    s3_xml_number(xml, "MaxKeys", listing->options.limit);
    if (listing->options.delimiter[0] != '\0')
        s3_xml_key(xml, "Delimiter", listing->options.delimiter, listing->is_encoded);
    if (listing->is_encoded)
        s3_xml_text(xml, "EncodingType", "url");
    s3_xml_bool(xml, "IsTruncated", listing->page.is_truncated);
}

static const char *last_key(const struct listing *listing)
{
    return listing->page.count > 0 ? listing->page.entries[listing->page.count - 1].key : "";
}

enum s3_code s3_list_reply_v1(struct s3_call *call)
{
    struct listing listing;
    struct s3_xml xml;
    const char *marker = s3_call_query(call, "marker");
    S3_TRY(listing_begin(call, &listing));
    listing.with_owner = true;
    listing.options.after = *marker != '\0' ? marker : NULL;
    S3_TRY(s3_list(call->store, &listing.options, &listing.page));
    head_write(&xml, &listing, "ListBucketResult");
    s3_xml_key(&xml, "Marker", marker, listing.is_encoded);
    if (listing.page.is_truncated && listing.options.delimiter[0] != '\0')
        s3_xml_key(&xml, "NextMarker", last_key(&listing), listing.is_encoded);
    entries_write(&xml, &listing);
    s3_list_release(&listing.page);
    return s3_reply_xml(call, &xml, "ListBucketResult");
}

/* A bucket has no versions but the objects that are there, which are all called "null". */
enum s3_code s3_list_reply_versions(struct s3_call *call)
{
    struct listing listing;
    struct s3_xml xml;
    const char *marker = s3_call_query(call, "key-marker");
    S3_TRY(listing_begin(call, &listing));
    listing.with_owner = listing.with_versions = true;
    listing.options.after = *marker != '\0' ? marker : NULL;
    S3_TRY(s3_list(call->store, &listing.options, &listing.page));
    head_write(&xml, &listing, "ListVersionsResult");
    s3_xml_key(&xml, "KeyMarker", marker, listing.is_encoded);
    s3_xml_text(&xml, "VersionIdMarker", s3_call_query(call, "version-id-marker"));
    if (listing.page.is_truncated) {
        s3_xml_key(&xml, "NextKeyMarker", last_key(&listing), listing.is_encoded);
        s3_xml_text(&xml, "NextVersionIdMarker", "null");
    }
    entries_write(&xml, &listing);
    s3_list_release(&listing.page);
    return s3_reply_xml(call, &xml, "ListVersionsResult");
}

/* A token is the last key in hexadecimal: it says all, so that any later time and any server of the
 * same store can go on from it. */
static enum s3_code token_read(const char *token, char key[S3_KEY_BYTES_MAX + 1])
{
    size_t bytes = strlen(token) / 2;
    if (bytes > S3_KEY_BYTES_MAX || bytes == 0 || !s3_unhex(token, (unsigned char *)key, bytes) ||
        memchr(key, '\0', bytes) != NULL)
        return s3_error(S3_INVALID_ARGUMENT, "The continuation token provided is incorrect");
    key[bytes] = '\0';
    return S3_OK;
}

static void token_write(struct s3_xml *xml, const char *key)
{
    char text[2 * S3_KEY_BYTES_MAX + 1];
    s3_hex((const unsigned char *)key, strlen(key), text);
    s3_xml_text(xml, "NextContinuationToken", text);
}

enum s3_code s3_list_reply_v2(struct s3_call *call)
{
    struct listing listing;
    struct s3_xml xml;
    const char *token = s3_call_query(call, "continuation-token");
    const char *start = s3_call_query(call, "start-after");
    S3_TRY(listing_begin(call, &listing));
    listing.with_owner = strcmp(s3_call_query(call, "fetch-owner"), "true") == 0;
    listing.options.after = *start != '\0' ? start : NULL;
    if (s3_call_asks(call, "continuation-token")) {
        S3_TRY(token_read(token, listing.after));
        listing.options.after = listing.after;
    }
    S3_TRY(s3_list(call->store, &listing.options, &listing.page));
    head_write(&xml, &listing, "ListBucketResult");
    s3_xml_number(&xml, "KeyCount", listing.page.count);
    if (*token != '\0')
        s3_xml_text(&xml, "ContinuationToken", token);
    if (*start != '\0')
        s3_xml_key(&xml, "StartAfter", start, listing.is_encoded);
    if (listing.page.is_truncated)
        token_write(&xml, last_key(&listing));
    entries_write(&xml, &listing);
    s3_list_release(&listing.page);
    return s3_reply_xml(call, &xml, "ListBucketResult");
}

/* ------------------------------------------------------------------------------- lists of uploads
 */

static void upload_write(struct s3_xml *xml, const struct s3_upload *upload, bool is_encoded)
{
    s3_xml_open(xml, "Upload");
    s3_xml_key(xml, "Key", upload->key, is_encoded);
    s3_xml_text(xml, "UploadId", upload->name);
    s3_xml_open(xml, "Initiator");
    s3_xml_text(xml, "ID", S3_OWNER_ID);
    s3_xml_text(xml, "DisplayName", S3_OWNER_NAME);
    s3_xml_close(xml, "Initiator");
    s3_owner_write(xml);
    s3_xml_text(xml, "StorageClass", upload->storage_class);
    s3_xml_time(xml, "Initiated", upload->created_ms);
    s3_xml_close(xml, "Upload");
}

enum s3_code s3_uploads_list(struct s3_call *call)
{
    struct s3_upload *uploads;
    struct s3_xml xml;
    size_t count;
    int limit;
    bool is_truncated, is_encoded;
    const char *prefix = s3_call_query(call, "prefix");
    const char *key = s3_call_query(call, "key-marker"),
               *name = s3_call_query(call, "upload-id-marker");
    if (s3_call_query(call, "delimiter")[0] != '\0')
        return s3_error(S3_NOT_IMPLEMENTED, "ListMultipartUploads has no delimiter here.");
    S3_TRY(encoding_of(call, &is_encoded));
    S3_TRY(s3_call_number(call, "max-uploads", 1000, 1000, &limit));
    /* Without the upload's name, what follows begins behind all uploads of the key. */
    S3_TRY(s3_upload_list(call->store, call->bucket, prefix, key,
                          *key != '\0' && *name == '\0' ? "~" : name, limit, &uploads, &count,
                          &is_truncated));
    s3_xml_begin(&xml, "ListMultipartUploadsResult");
    s3_xml_text(&xml, "Bucket", call->bucket);
    s3_xml_key(&xml, "KeyMarker", key, is_encoded);
    s3_xml_text(&xml, "UploadIdMarker", name);
    s3_xml_key(&xml, "Prefix", prefix, is_encoded);
    s3_xml_number(&xml, "MaxUploads", limit);
    s3_xml_bool(&xml, "IsTruncated", is_truncated);
    if (is_encoded)
        s3_xml_text(&xml, "EncodingType", "url");
    if (is_truncated && count > 0) {
        s3_xml_key(&xml, "NextKeyMarker", uploads[count - 1].key, is_encoded);
        s3_xml_text(&xml, "NextUploadIdMarker", uploads[count - 1].name);
    }
    for (size_t i = 0; i < count; i++)
        upload_write(&xml, &uploads[i], is_encoded);
    base_free(uploads);
    return s3_reply_xml(call, &xml, "ListMultipartUploadsResult");
}

/* ------------------------------------------------------------------------------------ delete many
 */

enum s3_code s3_objects_delete(struct s3_call *call)
{
    const char *keys[S3_DELETE_KEYS_MAX];
    size_t bytes, count = 0;
    const void *body = http_body(call->request, &bytes);
    S3_TRY(s3_body_check(call));
    S3_TRY(s3_delete_body_read(body, bytes, &call->deleted));
    const char *key = call->deleted.keys;
    for (size_t i = 0; i < call->deleted.count; i++, key += strlen(key) + 1)
        if (s3_key_check(key) == S3_OK)
            keys[count++] = key;
    s3_call_wait(call);
    s3_object_delete(call->store, call->bucket, keys, count, NULL, s3_call_done, call);
    return S3_OK;
}

enum s3_code s3_objects_deleted(struct s3_call *call)
{
    struct s3_xml xml;
    s3_xml_begin(&xml, "DeleteResult");
    const char *key = call->deleted.keys;
    for (size_t i = 0; i < call->deleted.count; i++, key += strlen(key) + 1) {
        enum s3_code code = s3_key_check(key);
        if (code == S3_OK && call->deleted.is_quiet)
            continue;
        s3_xml_open(&xml, code == S3_OK ? "Deleted" : "Error");
        s3_xml_text(&xml, "Key", key);
        if (code != S3_OK) {
            s3_xml_text(&xml, "Code", s3_code_name(code));
            s3_xml_text(&xml, "Message", base_error_text());
        }
        s3_xml_close(&xml, code == S3_OK ? "Deleted" : "Error");
    }
    return s3_reply_xml(call, &xml, "DeleteResult");
}
