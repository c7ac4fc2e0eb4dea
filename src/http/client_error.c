/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_error.c: what a service says of an error: the elements Code and Message of XML (S3 and the
 * query services), or "__type" and "message" of JSON; else the status alone.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <expat.h>
#include <jansson.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "http/client_state.h"

#define BODY_BYTES_MAX ((size_t)64 << 10) /* an error is short */

/* On one line, without controls and what is not UTF-8: it goes into messages. Whole characters. */
static void text_copy(char *out, size_t bytes, const char *text, size_t count)
{
    size_t used = 0, step;
    for (size_t i = 0; i<count; i += step> 0 ? step : 1) {
        unsigned char byte = (unsigned char)text[i];
        step = base_utf8_bytes(text + i, count - i);
        bool is_blank = byte <= 0x20 || byte == 0x7f || step == 0;
        if (is_blank && (used == 0 || out[used - 1] == ' '))
            continue;
        if (used + (is_blank ? 1 : step) >= bytes)
            break;
        memcpy(out + used, is_blank ? " " : text + i, is_blank ? 1 : step);
        used += is_blank ? 1 : step;
    }
    out[used] = '\0';
}

/* "com.amazonaws.x#Name:http://…" is the error Name. */
static void code_copy(char *out, size_t bytes, const char *text)
{
    const char *hash = strrchr(text, '#');
    const char *name = hash != NULL ? hash + 1 : text;
    text_copy(out, bytes, name, strcspn(name, ":"));
}

static void json_explain(struct http_answer *answer)
{
    json_t *body = json_loadb(answer->body.bytes, answer->body.count, 0, NULL);
    const char *type = json_string_value(json_object_get(body, "__type"));
    const char *text = json_string_value(json_object_get(body, "message"));
    if (text == NULL)
        text = json_string_value(json_object_get(body, "Message"));
    if (type == NULL)
        type = http_answer_header(answer, "x-amzn-ErrorType");
    if (type != NULL)
        code_copy(answer->code, sizeof(answer->code), type);
    if (text != NULL)
        text_copy(answer->text, sizeof(answer->text), text, strlen(text));
    json_decref(body);
}

/* The first Code and the first Message, wherever they stand. */
struct reading {
    XML_Parser parser;
    struct http_text *into; /* NULL: within nothing that is wanted */
    struct http_text code, text;
};

static void element_begin(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct reading *reading = user;
    (void)attributes;
    if (strcmp(name, "Code") == 0 && reading->code.count == 0)
        reading->into = &reading->code;
    else if (strcmp(name, "Message") == 0 && reading->text.count == 0)
        reading->into = &reading->text;
    else
        reading->into = NULL;
}

static void element_end(void *user, const XML_Char *name)
{
    struct reading *reading = user;
    (void)name;
    reading->into = NULL;
}

static void element_text(void *user, const XML_Char *text, int count)
{
    struct reading *reading = user;
    if (reading->into != NULL)
        http_text_add(reading->into, text, (size_t)count);
}

/* An error needs none, and entities come with it. */
static void type_refuse(void *user, const XML_Char *name, const XML_Char *system,
                        const XML_Char *public, int has_subset)
{
    struct reading *reading = user;
    (void)name, (void)system, (void)public, (void)has_subset;
    XML_StopParser(reading->parser, XML_FALSE);
}

static void xml_explain(struct http_answer *answer)
{
    struct reading reading = {.parser = XML_ParserCreate(NULL)};
    if (reading.parser == NULL)
        return;
    XML_SetUserData(reading.parser, &reading);
    XML_SetElementHandler(reading.parser, element_begin, element_end);
    XML_SetCharacterDataHandler(reading.parser, element_text);
    XML_SetStartDoctypeDeclHandler(reading.parser, type_refuse);
    /* What was read before a fault still tells more than nothing. */
    (void)XML_Parse(reading.parser, answer->body.bytes, (int)answer->body.count, XML_TRUE);
    text_copy(answer->code, sizeof(answer->code), http_text_string(&reading.code),
              reading.code.count);
    text_copy(answer->text, sizeof(answer->text), http_text_string(&reading.text),
              reading.text.count);
    XML_ParserFree(reading.parser);
    http_text_free(&reading.code);
    http_text_free(&reading.text);
}

void http_answer_explain(struct http_answer *answer)
{
    const char *body = http_text_string(&answer->body);
    body += strspn(body, " \t\r\n");
    if (answer->body.count > BODY_BYTES_MAX)
        return;
    if (*body == '<')
        xml_explain(answer);
    else if (*body == '{')
        json_explain(answer);
    else if (http_answer_header(answer, "x-amzn-ErrorType") != NULL)
        code_copy(answer->code, sizeof(answer->code),
                  http_answer_header(answer, "x-amzn-ErrorType"));
}
