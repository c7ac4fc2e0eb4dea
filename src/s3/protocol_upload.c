/* SPDX-License-Identifier: Apache-2.0 */
/* protocol_upload.c: multipart uploads, but for their parts' bodies (protocol_object.c). */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "s3/protocol_state.h"

/* ------------------------------------------------------------------------------------------ begin
 */

/* Whether the checksum is of the parts' checksums. Only CRCs can be of the whole object. */
static enum s3_code type_of(struct s3_call *call, enum s3_algorithm algorithm, bool *is_composite)
{
    const char *type = s3_call_header(call, "x-amz-checksum-type");
    *is_composite = algorithm != S3_CRC64NVME;
    if (type == NULL || algorithm == S3_NO_CHECKSUM)
        return S3_OK;
    *is_composite = strcasecmp(type, "COMPOSITE") == 0;
    if ((*is_composite && algorithm == S3_CRC64NVME) ||
        (!*is_composite && !s3_algorithm_combines(algorithm)))
        return s3_error(S3_INVALID_REQUEST,
                        "The %s checksum type cannot be used with the %s checksum algorithm.", type,
                        s3_algorithm_name(algorithm));
    return S3_OK;
}

enum s3_code s3_upload_begin(struct s3_call *call)
{
    char *headers = NULL, *tags = NULL;
    const char *value;
    struct s3_upload_options options = {.bucket = call->bucket, .key = call->key};
    S3_TRY(s3_checksum_of(call, &call->algorithm, &value));
    S3_TRY(type_of(call, call->algorithm, &options.is_composite));
    S3_TRY(s3_headers_of(call, &headers));
    enum s3_code code = s3_tags_of(call, &tags);
    options.headers = headers;
    options.tags = tags;
    options.algorithm = call->algorithm;
    if (code == S3_OK) {
        s3_call_wait(call);
        s3_upload_create(call->store, &options, call->upload, s3_call_done, call);
    }
    base_free(headers);
    base_free(tags);
    return code;
}

enum s3_code s3_upload_begun(struct s3_call *call)
{
    struct s3_xml xml;
    const char *encryption = s3_call_header(call, "x-amz-server-side-encryption");
    bool is_composite = false;
    type_of(call, call->algorithm, &is_composite);
    if (call->algorithm != S3_NO_CHECKSUM) {
        s3_reply_header(call, "x-amz-checksum-algorithm", s3_algorithm_name(call->algorithm));
        s3_reply_header(call, "x-amz-checksum-type", is_composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    if (encryption != NULL)
        s3_reply_header(call, "x-amz-server-side-encryption", encryption);
    s3_xml_begin(&xml, "InitiateMultipartUploadResult");
    s3_xml_text(&xml, "Bucket", call->bucket);
    s3_xml_text(&xml, "Key", call->key);
    s3_xml_text(&xml, "UploadId", call->upload);
    return s3_reply_xml(call, &xml, "InitiateMultipartUploadResult");
}

/* ------------------------------------------------------------------------------------------- parts
 */

static void part_write(struct s3_xml *xml, const struct s3_part *part)
{
    s3_xml_open(xml, "Part");
    s3_xml_number(xml, "PartNumber", part->number);
    s3_xml_time(xml, "LastModified", part->modified_ms);
    s3_xml_etag(xml, part->etag);
    s3_xml_number(xml, "Size", part->bytes);
    s3_checksum_write(xml, &part->checksum);
    s3_xml_close(xml, "Part");
}

enum s3_code s3_parts_list(struct s3_call *call)
{
    const char *upload = s3_call_query(call, "uploadId");
    struct s3_upload about;
    struct s3_part *parts;
    struct s3_xml xml;
    size_t count;
    int limit, after;
    bool is_truncated;
    S3_TRY(s3_call_number(call, "max-parts", 1000, 1000, &limit));
    S3_TRY(s3_call_number(call, "part-number-marker", S3_PART_NUMBER_MAX, 0, &after));
    S3_TRY(s3_upload_find(call->store, call->bucket, call->key, upload, &about));
    S3_TRY(s3_upload_parts(call->store, call->bucket, call->key, upload, after, limit, &parts,
                           &count, &is_truncated));
    s3_xml_begin(&xml, "ListPartsResult");
    s3_xml_text(&xml, "Bucket", call->bucket);
    s3_xml_text(&xml, "Key", call->key);
    s3_xml_text(&xml, "UploadId", upload);
    s3_xml_text(&xml, "StorageClass", about.storage_class);
    s3_xml_number(&xml, "PartNumberMarker", after);
    if (is_truncated && count > 0)
        s3_xml_number(&xml, "NextPartNumberMarker", parts[count - 1].number);
    s3_xml_number(&xml, "MaxParts", limit);
    s3_xml_bool(&xml, "IsTruncated", is_truncated);
    if (about.algorithm != S3_NO_CHECKSUM) {
        s3_xml_text(&xml, "ChecksumAlgorithm", s3_algorithm_name(about.algorithm));
        s3_xml_text(&xml, "ChecksumType", about.is_composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    for (size_t i = 0; i < count; i++)
        part_write(&xml, &parts[i]);
    base_free(parts);
    return s3_reply_xml(call, &xml, "ListPartsResult");
}

/* --------------------------------------------------------------------------------------------- end
 */

enum s3_code s3_upload_end(struct s3_call *call)
{
    struct s3_conditions conditions;
    struct s3_part *parts;
    size_t bytes, count;
    enum s3_algorithm algorithm;
    const void *body = http_body(call->request, &bytes);
    struct s3_complete complete = {.bucket = call->bucket,
                                   .key = call->key,
                                   .upload = s3_call_query(call, "uploadId"),
                                   .conditions = &conditions};
    s3_conditions_of(call, "", &conditions);
    S3_TRY(s3_checksum_of(call, &algorithm, &complete.checksum)); /* the object's, not the body's */
    S3_TRY(s3_complete_body_read(body, bytes, &parts, &count));
    complete.parts = parts;
    complete.part_count = count;
    s3_call_wait(call);
    s3_upload_complete(call->store, &complete, &call->written, s3_call_done, call);
    base_free(parts);
    return S3_OK;
}

enum s3_code s3_upload_ended(struct s3_call *call)
{
    const struct s3_checksum *checksum = &call->written.checksum;
    struct s3_xml xml;
    char location[S3_KEY_BYTES_MAX + 80];
    snprintf(location, sizeof(location), "/%s/%s", call->bucket, call->key);
    s3_xml_begin(&xml, "CompleteMultipartUploadResult");
    s3_xml_text(&xml, "Location", location);
    s3_xml_text(&xml, "Bucket", call->bucket);
    s3_xml_text(&xml, "Key", call->key);
    s3_xml_etag(&xml, call->written.etag);
    s3_checksum_write(&xml, checksum);
    if (checksum->text[0] != '\0')
        s3_xml_text(&xml, "ChecksumType",
                    s3_checksum_is_composite(checksum) ? "COMPOSITE" : "FULL_OBJECT");
    return s3_reply_xml(call, &xml, "CompleteMultipartUploadResult");
}

enum s3_code s3_upload_give_up(struct s3_call *call)
{
    s3_call_wait(call);
    s3_upload_abort(call->store, call->bucket, call->key, s3_call_query(call, "uploadId"),
                    s3_call_done, call);
    return S3_OK;
}
