/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol_about.c: who owns buckets and objects, and what is asked of an object without its
 * headers. There is one owner, who may do everything, and nobody else may be given anything.
 */
#include <string.h>
#include <strings.h>

#include "s3/protocol_state.h"

void s3_owner_write(struct s3_xml *xml)
{
    s3_xml_open(xml, "Owner");
    s3_xml_text(xml, "ID", S3_OWNER_ID);
    s3_xml_text(xml, "DisplayName", S3_OWNER_NAME);
    s3_xml_close(xml, "Owner");
}

/* ----------------------------------------------------------------------------------------- grants
 */

static enum s3_code acl_reply(struct s3_call *call)
{
    struct s3_xml xml;
    s3_xml_begin(&xml, "AccessControlPolicy");
    s3_owner_write(&xml);
    s3_xml_open(&xml, "AccessControlList");
    s3_xml_open(&xml, "Grant");
    s3_xml_open(&xml, "Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
                      "xsi:type=\"CanonicalUser\"");
    s3_xml_text(&xml, "ID", S3_OWNER_ID);
    s3_xml_text(&xml, "DisplayName", S3_OWNER_NAME);
    s3_xml_close(&xml, "Grantee");
    s3_xml_text(&xml, "Permission", "FULL_CONTROL");
    s3_xml_close(&xml, "Grant");
    s3_xml_close(&xml, "AccessControlList");
    return s3_reply_xml(call, &xml, "AccessControlPolicy");
}

enum s3_code s3_bucket_acl(struct s3_call *call)
{
    struct s3_bucket bucket;
    S3_TRY(s3_bucket_find(call->store, call->bucket, &bucket));
    return acl_reply(call);
}

enum s3_code s3_object_acl(struct s3_call *call)
{
    struct s3_object object;
    S3_TRY(s3_object_get(call->store, call->bucket, call->key, NULL, &object, NULL));
    s3_object_release(&object);
    return acl_reply(call);
}

/* ------------------------------------------------------------------------------------- attributes
 */

void s3_checksum_write(struct s3_xml *xml, const struct s3_checksum *checksum)
{
    char name[32] = "Checksum";
    if (checksum->algorithm == S3_NO_CHECKSUM || checksum->text[0] == '\0')
        return;
    strcat(name, s3_algorithm_name(checksum->algorithm));
    s3_xml_text(xml, name, checksum->text);
}

static void etag_write(struct s3_xml *xml, const struct s3_object *object)
{
    s3_xml_text(xml, "ETag", object->etag); /* without quotes, unlike everywhere else */
}

static void checksums_write(struct s3_xml *xml, const struct s3_object *object)
{
    const struct s3_checksum *checksum = &object->checksum;
    if (checksum->algorithm == S3_NO_CHECKSUM || checksum->text[0] == '\0')
        return;
    s3_xml_open(xml, "Checksum");
    s3_checksum_write(xml, checksum);
    s3_xml_text(xml, "ChecksumType",
                s3_checksum_is_composite(checksum) ? "COMPOSITE" : "FULL_OBJECT");
    s3_xml_close(xml, "Checksum");
}

static void parts_write(struct s3_xml *xml, const struct s3_object *object)
{
    if (object->part_count == 0)
        return;
    s3_xml_open(xml, "ObjectParts");
    s3_xml_number(xml, "PartsCount", object->part_count);
    s3_xml_close(xml, "ObjectParts");
}

static void class_write(struct s3_xml *xml, const struct s3_object *object)
{
    char storage_class[S3_CLASS_BYTES];
    s3_headers_class(object->headers, storage_class);
    s3_xml_text(xml, "StorageClass", storage_class);
}

static void bytes_write(struct s3_xml *xml, const struct s3_object *object)
{
    s3_xml_number(xml, "ObjectSize", object->bytes);
}

static const struct attribute {
    const char *name;
    void (*write)(struct s3_xml *xml, const struct s3_object *object);
} attributes[] = {
    {"ETag", etag_write},          {"Checksum", checksums_write}, {"ObjectParts", parts_write},
    {"StorageClass", class_write}, {"ObjectSize", bytes_write},
};
#define ATTRIBUTE_COUNT (sizeof(attributes) / sizeof(attributes[0]))

/* Which ones are asked for, a bit each, by a list with commas. */
static enum s3_code wanted_of(struct s3_call *call, unsigned *wanted)
{
    const char *list = s3_call_header(call, "x-amz-object-attributes");
    *wanted = 0;
    for (const char *at = list != NULL ? list : ""; *at != '\0';) {
        size_t bytes = strcspn(at, ", "), i = 0;
        while (i < ATTRIBUTE_COUNT &&
               (strlen(attributes[i].name) != bytes || strncmp(attributes[i].name, at, bytes) != 0))
            i++;
        if (i == ATTRIBUTE_COUNT)
            return s3_error(S3_INVALID_ARGUMENT, "Invalid attribute name specified.");
        *wanted |= 1u << i;
        at += bytes;
        at += strspn(at, ", ");
    }
    if (*wanted == 0)
        return s3_error(S3_INVALID_REQUEST,
                        "The x-amz-object-attributes header specifying the "
                        "attributes to be retrieved is either missing or empty");
    return S3_OK;
}

enum s3_code s3_attributes_get(struct s3_call *call)
{
    struct s3_object object;
    struct s3_xml xml;
    unsigned wanted;
    S3_TRY(wanted_of(call, &wanted));
    S3_TRY(s3_object_get(call->store, call->bucket, call->key, NULL, &object, NULL));
    s3_reply_date(call, "Last-Modified", object.modified_ms);
    s3_xml_begin(&xml, "GetObjectAttributesResponse");
    for (size_t i = 0; i < ATTRIBUTE_COUNT; i++)
        if (wanted >> i & 1)
            attributes[i].write(&xml, &object);
    s3_object_release(&object);
    return s3_reply_xml(call, &xml, "GetObjectAttributesResponse");
}
