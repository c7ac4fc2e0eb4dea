/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: a strict reader of JSON text (RFC 8259) by descent: the caller asks for what it expects,
 * member by member, and skips the rest, which is checked all the same.
 *
 *     TRY(boot_json_object(&json));
 *     while (true) {
 *         char name[64]; bool more;
 *         TRY(boot_json_member(&json, name, sizeof(name), &more));
 *         if (!more) break;
 *         … boot_json_string, boot_json_array, or boot_json_skip for its value
 *     }
 *     TRY(boot_json_end(&json));
 *
 * Errors are SHOAL_ERR_FORMAT and name line and column. Nothing is allocated.
 */
#ifndef SHOAL_BOOT_JSON_H
#define SHOAL_BOOT_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

#define BOOT_JSON_DEPTH_MAX 32

struct boot_json {
    const char *text, *end, *at;
    int depth;
    bool first[BOOT_JSON_DEPTH_MAX]; /* no member or element of this level was read yet */
    char close[BOOT_JSON_DEPTH_MAX]; /* '}' or ']' */
};

/* Begins to read `bytes` of text, which is borrowed. */
void boot_json_begin(struct boot_json *json, const char *text, size_t bytes);
/* Enters an object or an array. */
enum shoal_status boot_json_object(struct boot_json *json);
enum shoal_status boot_json_array(struct boot_json *json);
/* The next member's name, its value comes next; or, at the object's end, more = false. A name that
 * does not fit is cut. */
enum shoal_status boot_json_member(struct boot_json *json, char *name, size_t bytes, bool *more);
/* Whether there is another element; at the array's end more = false. */
enum shoal_status boot_json_element(struct boot_json *json, bool *more);
/* A string as UTF-8; one that doesn't fit, or holds a NUL, is an error. */
enum shoal_status boot_json_string(struct boot_json *json, char *out, size_t bytes);
/* A number, as near as a double comes. */
enum shoal_status boot_json_number(struct boot_json *json, double *out);
/* Any one value. */
enum shoal_status boot_json_skip(struct boot_json *json);
/* Nothing but blanks may follow. */
enum shoal_status boot_json_end(struct boot_json *json);
/* An error at the place that was read last. */
enum shoal_status boot_json_error(const struct boot_json *json, const char *what);

#endif
