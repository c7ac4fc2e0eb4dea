/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: text that grows: bodies of replies, canonical requests. An append that fails makes all
 * later ones do nothing, so that only http_text_status is looked at, once, at the end.
 */
#ifndef SHOAL_HTTP_TEXT_H
#define SHOAL_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

struct http_text {
    char *bytes; /* NULL while it is empty; else with a NUL behind the `count`th */
    size_t count;
    size_t capacity;
    size_t limit; /* more is SHOAL_ERR_LIMIT; 0: HTTP_TEXT_BYTES_MAX */
    enum shoal_status status;
};
#define HTTP_TEXT_BYTES_MAX ((size_t)64 << 20)

void http_text_add(struct http_text *text, const void *bytes, size_t count);
void http_text_put(struct http_text *text, const char *string);
void http_text_format(struct http_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What stands in XML's contents and attributes for the character at the front of `left` bytes, NULL
 * for itself; *bytes is how many it has. What XML 1.0 has no form for, control characters and bytes
 * that are not UTF-8 among it, is U+FFFD. */
const char *http_xml_escape(const char *text, size_t left, size_t *bytes);
void http_text_xml(struct http_text *text, const char *string);
/* <name>string</name>. */
void http_text_element(struct http_text *text, const char *name, const char *string);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void http_text_json(struct http_text *text, const char *string);
/* Percent-encoded but for A-Z a-z 0-9 - . _ ~, and '/' if it is kept. */
void http_text_encode(struct http_text *text, const char *bytes, size_t count, bool keep_slash);
/* Sets aside room for `count` more bytes. */
enum shoal_status http_text_reserve(struct http_text *text, size_t count);
/* The first failure. */
enum shoal_status http_text_status(const struct http_text *text);
/* The text, "" while it is empty. */
const char *http_text_string(const struct http_text *text);
/* Frees it; it is empty then, and may be used again. */
void http_text_free(struct http_text *text);

#endif
