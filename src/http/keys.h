/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h: the file of access keys: one `KEY SECRET [NAME]` a line, `#` begins a comment. Only its
 * owner may read it.
 */
#ifndef SHOAL_HTTP_KEYS_H
#define SHOAL_HTTP_KEYS_H

#include "shoal.h"

#define HTTP_KEY_ID_BYTES     129
#define HTTP_KEY_SECRET_BYTES 129
#define HTTP_KEY_NAME_BYTES   65

struct http_key {
    char id[HTTP_KEY_ID_BYTES];
    char secret[HTTP_KEY_SECRET_BYTES];
    char name[HTTP_KEY_NAME_BYTES]; /* the id where the file gives none */
};

struct http_keys;

/* Reads the file. SHOAL_ERR_FORMAT names the line that is wrong; SHOAL_ERR_SYSTEM: it can't be
 * read, or others may read or write it. */
enum shoal_status http_keys_load(const char *path, struct http_keys **out);
/* The same of a text; `name` is for errors. */
enum shoal_status http_keys_parse(const char *name, const char *text, size_t bytes,
                                  struct http_keys **out);
/* Makes the file with one fresh pair if there is none. It is whole or not there, whenever the
 * machine stops. */
enum shoal_status http_keys_make(const char *path);
/* NULL if there is none of that id. */
const struct http_key *http_keys_find(const struct http_keys *keys, const char *id);
/* The first of the file. */
const struct http_key *http_keys_first(const struct http_keys *keys);
void http_keys_free(struct http_keys *keys);

#endif
