/* SPDX-License-Identifier: Apache-2.0 */
/* xml_write.c: XML into a text that grows. */
#include "s3/xml_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "http/text.h"

#define ROOM_FIRST 1024

static void add(struct s3_xml *xml, const char *text, size_t bytes)
{
    if (xml->has_failed)
        return;
    if (xml->bytes + bytes + 1 > xml->room) {
        size_t room = (xml->bytes + bytes + ROOM_FIRST) * 2;
        char *larger;
        if (base_alloc(room, "an XML reply", (void **)&larger) != SHOAL_OK) {
            xml->has_failed = true;
            return;
        }
        if (xml->bytes > 0)
            memcpy(larger, xml->text, xml->bytes);
        base_free(xml->text);
        xml->text = larger;
        xml->room = room;
    }
    memcpy(xml->text + xml->bytes, text, bytes);
    xml->bytes += bytes;
}

static void add_text(struct s3_xml *xml, const char *text)
{
    add(xml, text, strlen(text));
}

static void tag(struct s3_xml *xml, const char *start, const char *name)
{
    add_text(xml, start);
    add_text(xml, name);
    add_text(xml, ">");
}

void s3_xml_open(struct s3_xml *xml, const char *name)
{
    tag(xml, "<", name);
}

void s3_xml_close(struct s3_xml *xml, const char *name)
{
    tag(xml, "</", name);
}

void s3_xml_begin(struct s3_xml *xml, const char *root)
{
    *xml = (struct s3_xml){0};
    add_text(xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
    add_text(xml, root);
    add_text(xml, " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
}

void s3_xml_content(struct s3_xml *xml, const char *text)
{
    const char *plain = text, *end = text + strlen(text);
    for (size_t bytes; text < end; text += bytes) {
        const char *escape = http_xml_escape(text, (size_t)(end - text), &bytes);
        if (escape == NULL)
            continue;
        add(xml, plain, (size_t)(text - plain));
        add_text(xml, escape);
        plain = text + bytes;
    }
    add(xml, plain, (size_t)(text - plain));
}

void s3_xml_text(struct s3_xml *xml, const char *name, const char *text)
{
    s3_xml_open(xml, name);
    s3_xml_content(xml, text);
    s3_xml_close(xml, name);
}

void s3_xml_number(struct s3_xml *xml, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    s3_xml_text(xml, name, text);
}

void s3_xml_bool(struct s3_xml *xml, const char *name, bool value)
{
    s3_xml_text(xml, name, value ? "true" : "false");
}

void s3_xml_time(struct s3_xml *xml, const char *name, int64_t ms)
{
    char text[64];
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    size_t used = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + used, sizeof(text) - used, ".%03dZ", (int)(ms % 1000));
    s3_xml_text(xml, name, text);
}

void s3_xml_etag(struct s3_xml *xml, const char *etag)
{
    add_text(xml, "<ETag>&quot;");
    add_text(xml, etag);
    add_text(xml, "&quot;</ETag>");
}

static bool stays(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-_.~/", c) != NULL);
}

void s3_xml_key(struct s3_xml *xml, const char *name, const char *key, bool is_encoded)
{
    if (!is_encoded) {
        s3_xml_text(xml, name, key);
        return;
    }
    s3_xml_open(xml, name);
    for (; *key != '\0'; key++) {
        char code[4];
        if (stays(*key))
            snprintf(code, sizeof(code), "%c", *key);
        else
            snprintf(code, sizeof(code), "%%%02X", (unsigned char)*key);
        add_text(xml, code);
    }
    s3_xml_close(xml, name);
}

enum s3_code s3_xml_end(struct s3_xml *xml, const char *root)
{
    s3_xml_close(xml, root);
    return xml->has_failed ? S3_SLOW_DOWN : S3_OK;
}

void s3_xml_release(struct s3_xml *xml)
{
    base_free(xml->text);
    *xml = (struct s3_xml){0};
}
