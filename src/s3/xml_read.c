/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml_read.c: walks a document, and gives each element's path and text to its reader at its end:
 * "Delete/Object/Key", then "Delete/Object".
 */
#include "s3/xml_read.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "s3/query.h"

#define DEPTH_MAX      8
#define NAME_BYTES_MAX 64
#define TEXT_BYTES_MAX 4096
#define PART_XML_BYTES 50 /* at least, with number and ETag */
#define TAGS_MAX       10
#define TAG_KEY_MAX    128
#define TAG_VALUE_MAX  256

struct document {
    XML_Parser parser;
    char path[DEPTH_MAX * (NAME_BYTES_MAX + 1)];
    size_t path_bytes;
    int depth;
    char text[TEXT_BYTES_MAX + 1];
    size_t text_bytes;
    /* At the end of an element; anything but S3_OK ends the walk. */
    enum s3_code (*leave)(void *user, const char *path, const char *text);
    void *user;
    enum s3_code code;
};

static void stop(struct document *document, enum s3_code code)
{
    if (document->code == S3_OK)
        document->code = code;
    XML_StopParser(document->parser, XML_FALSE);
}

/* The name behind the namespace, which Expat puts in front with a '|'. */
static const char *local_name(const char *name)
{
    const char *bar = strrchr(name, '|');
    return bar != NULL ? bar + 1 : name;
}

static void on_start(void *user, const char *full_name, const char **attributes)
{
    struct document *document = user;
    const char *name = local_name(full_name);
    size_t bytes = strlen(name);
    (void)attributes;
    document->text_bytes = 0;
    if (document->depth == DEPTH_MAX || bytes > NAME_BYTES_MAX) {
        stop(document, s3_error(S3_MALFORMED_XML, NULL));
        return;
    }
    document->path_bytes += (size_t)sprintf(document->path + document->path_bytes, "%s%s",
                                            document->depth > 0 ? "/" : "", name);
    document->depth++;
}

static void on_text(void *user, const char *text, int bytes)
{
    struct document *document = user;
    if (document->text_bytes + (size_t)bytes > TEXT_BYTES_MAX) {
        stop(document, s3_error(S3_MALFORMED_XML, NULL));
        return;
    }
    memcpy(document->text + document->text_bytes, text, (size_t)bytes);
    document->text_bytes += (size_t)bytes;
}

static void on_end(void *user, const char *full_name)
{
    struct document *document = user;
    size_t bytes = strlen(local_name(full_name));
    if (document->code != S3_OK)
        return; /* the end of an empty element still comes, also where its start was refused */
    document->text[document->text_bytes] = '\0';
    enum s3_code code = document->leave(document->user, document->path, document->text);
    document->text_bytes = 0;
    document->depth--;
    document->path_bytes -= bytes + (document->depth > 0 ? 1 : 0);
    document->path[document->path_bytes] = '\0';
    if (code != S3_OK)
        stop(document, code);
}

static void on_doctype(void *user, const char *name, const char *system, const char *public_name,
                       int has_internal)
{
    (void)name, (void)system, (void)public_name, (void)has_internal;
    stop(user, s3_error(S3_MALFORMED_XML, "A request's XML may have no document type."));
}

enum s3_code s3_xml_walk(const void *body, size_t bytes,
                         enum s3_code (*leave)(void *user, const char *path, const char *text),
                         void *user)
{
    struct document *document;
    S3_TRY(s3_from_status(BASE_NEW(&document, "an XML document")));
    document->leave = leave;
    document->user = user;
    document->parser = XML_ParserCreateNS("UTF-8", '|');
    if (document->parser == NULL) {
        base_free(document);
        return s3_error(S3_SLOW_DOWN, "no memory for an XML document");
    }
    XML_SetUserData(document->parser, document);
    XML_SetElementHandler(document->parser, on_start, on_end);
    XML_SetCharacterDataHandler(document->parser, on_text);
    XML_SetStartDoctypeDeclHandler(document->parser, on_doctype);
    enum XML_Status status = bytes > (1u << 30)
                                 ? XML_STATUS_ERROR
                                 : XML_Parse(document->parser, body, (int)bytes, XML_TRUE);
    enum s3_code code = document->code;
    if (code == S3_OK && status != XML_STATUS_OK)
        code = s3_error(S3_MALFORMED_XML, NULL);
    XML_ParserFree(document->parser);
    base_free(document);
    return code;
}

/* -------------------------------------------------------------------------------- DeleteObjects */

struct delete_reader {
    struct s3_delete_body *out;
    size_t used, room;
    char version[8];
};

static enum s3_code delete_leave(void *user, const char *path, const char *text)
{
    struct delete_reader *reader = user;
    if (strcmp(path, "Delete/Quiet") == 0)
        reader->out->is_quiet = strcasecmp(text, "true") == 0;
    if (strcmp(path, "Delete/Object/VersionId") == 0 && strcmp(text, "null") != 0 && *text != '\0')
        return s3_error(S3_NOT_IMPLEMENTED, "Versions of objects are not implemented here.");
    if (strcmp(path, "Delete/Object/ETag") == 0 || strcmp(path, "Delete/Object/Size") == 0 ||
        strcmp(path, "Delete/Object/LastModifiedTime") == 0)
        return s3_error(S3_NOT_IMPLEMENTED,
                        "Conditions on objects of DeleteObjects are not implemented here.");
    if (strcmp(path, "Delete/Object/Key") != 0)
        return S3_OK;
    size_t bytes = strlen(text) + 1;
    if (reader->out->count == S3_DELETE_KEYS_MAX || reader->used + bytes > reader->room ||
        bytes == 1)
        return s3_error(S3_MALFORMED_XML, NULL);
    memcpy(reader->out->keys + reader->used, text, bytes);
    reader->used += bytes;
    reader->out->count++;
    return S3_OK;
}

enum s3_code s3_delete_body_read(const void *body, size_t bytes, struct s3_delete_body *out)
{
    *out = (struct s3_delete_body){0};
    struct delete_reader reader = {.out = out,
                                   .room = bytes}; /* texts are shorter than their XML */
    S3_TRY(s3_from_status(base_alloc(bytes + 1, "keys to delete", (void **)&out->keys)));
    enum s3_code code = s3_xml_walk(body, bytes, delete_leave, &reader);
    if (code == S3_OK && out->count == 0)
        code = s3_error(S3_MALFORMED_XML, NULL);
    if (code != S3_OK) {
        base_free(out->keys);
        out->keys = NULL;
    }
    return code;
}

/* ---------------------------------------------------------------------- CompleteMultipartUpload */

struct complete_reader {
    struct s3_part *parts;
    size_t count, room;
    struct s3_part part; /* the one that is being read */
};

/* The ETag without its quotes. */
static enum s3_code etag_take(const char *text, char etag[S3_ETAG_BYTES])
{
    while (*text == ' ' || *text == '\n' || *text == '"')
        text++;
    size_t bytes = strcspn(text, "\" \n");
    if (bytes >= S3_ETAG_BYTES)
        return s3_error(S3_INVALID_PART, NULL);
    memcpy(etag, text, bytes);
    etag[bytes] = '\0';
    return S3_OK;
}

static enum s3_code part_field(struct s3_part *part, const char *field, const char *text)
{
    static const char prefix[] = "Checksum";
    if (strcmp(field, "PartNumber") == 0) {
        char *end;
        long number = strtol(text, &end, 10);
        if (*text == '\0' || *end != '\0' || number < 1 || number > S3_PART_NUMBER_MAX)
            return s3_error(S3_INVALID_ARGUMENT,
                            "PartNumber must be an integer between 1 and 10000, inclusive");
        part->number = (int)number;
        return S3_OK;
    }
    if (strcmp(field, "ETag") == 0)
        return etag_take(text, part->etag);
    if (strncmp(field, prefix, sizeof(prefix) - 1) != 0)
        return S3_OK;
    if (strlen(text) >= sizeof(part->checksum.text))
        return s3_error(S3_INVALID_PART, NULL);
    S3_TRY(s3_algorithm_of(field + sizeof(prefix) - 1, &part->checksum.algorithm));
    strcpy(part->checksum.text, text);
    return S3_OK;
}

static enum s3_code complete_leave(void *user, const char *path, const char *text)
{
    static const char prefix[] = "CompleteMultipartUpload/Part";
    struct complete_reader *reader = user;
    if (strncmp(path, prefix, sizeof(prefix) - 1) != 0)
        return S3_OK;
    path += sizeof(prefix) - 1;
    if (*path == '/')
        return part_field(&reader->part, path + 1, text);
    if (*path != '\0')
        return S3_OK;
    if (reader->count == reader->room || reader->part.number == 0 || reader->part.etag[0] == '\0')
        return s3_error(S3_MALFORMED_XML, NULL);
    reader->parts[reader->count++] = reader->part;
    reader->part = (struct s3_part){0};
    return S3_OK;
}

enum s3_code s3_complete_body_read(const void *body, size_t bytes, struct s3_part **out,
                                   size_t *count)
{
    struct complete_reader reader = {.room = bytes / PART_XML_BYTES + 1};
    if (reader.room > S3_PART_NUMBER_MAX)
        reader.room = S3_PART_NUMBER_MAX;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&reader.parts, reader.room, "a list of parts")));
    enum s3_code code = s3_xml_walk(body, bytes, complete_leave, &reader);
    if (code == S3_OK && reader.count == 0)
        code = s3_error(S3_MALFORMED_XML, NULL);
    if (code != S3_OK) {
        base_free(reader.parts);
        return code;
    }
    *out = reader.parts;
    *count = reader.count;
    return S3_OK;
}

/* -------------------------------------------------------------------- CreateBucketConfiguration */

static enum s3_code bucket_leave(void *user, const char *path, const char *text)
{
    if (strcmp(path, "CreateBucketConfiguration/LocationConstraint") == 0)
        snprintf(user, 32, "%s", text);
    return S3_OK;
}

enum s3_code s3_bucket_body_read(const void *body, size_t bytes, char region[32])
{
    region[0] = '\0';
    return bytes == 0 ? S3_OK : s3_xml_walk(body, bytes, bucket_leave, region);
}

/* ---------------------------------------------------------------------------------------- Tagging
 */

struct tags_reader {
    char key[TAG_KEY_MAX * 4 + 1], value[TAG_VALUE_MAX * 4 + 1];
    int count;
    char *at, *end;
};

static enum s3_code tags_leave(void *user, const char *path, const char *text)
{
    struct tags_reader *reader = user;
    if (strcmp(path, "Tagging/TagSet/Tag/Key") == 0) {
        if (*text == '\0' || strlen(text) >= sizeof(reader->key))
            return s3_error(S3_INVALID_TAG, "The TagKey you have provided is invalid");
        strcpy(reader->key, text);
    }
    if (strcmp(path, "Tagging/TagSet/Tag/Value") == 0) {
        if (strlen(text) >= sizeof(reader->value))
            return s3_error(S3_INVALID_TAG, "The TagValue you have provided is invalid");
        strcpy(reader->value, text);
    }
    if (strcmp(path, "Tagging/TagSet/Tag") != 0)
        return S3_OK;
    if (reader->count == TAGS_MAX)
        return s3_error(S3_INVALID_TAG, "Object tags cannot be greater than 10");
    if (reader->count++ > 0)
        *reader->at++ = '&';
    reader->at = s3_query_encode(reader->key, reader->at);
    *reader->at++ = '=';
    reader->at = s3_query_encode(reader->value, reader->at);
    *reader->at = '\0';
    reader->key[0] = reader->value[0] = '\0';
    return S3_OK;
}

enum s3_code s3_tags_body_read(const void *body, size_t bytes, char **out)
{
    struct tags_reader reader = {.key = ""};
    size_t room = TAGS_MAX * 3 * (sizeof(reader.key) + sizeof(reader.value) + 2);
    char *text;
    S3_TRY(s3_from_status(base_alloc(room, "tags", (void **)&text)));
    reader.at = text;
    enum s3_code code = s3_xml_walk(body, bytes, tags_leave, &reader);
    if (code != S3_OK)
        base_free(text);
    else
        *out = text;
    return code;
}
