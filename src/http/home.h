/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.h: the service's directory: one service at a time has it, and its clients on this machine
 * find in it where the service is and how to sign.
 *
 *     address      "HOST:PORT PID SCHEME" of the running service, which holds a lock on it
 *     keys         keys.h
 *     tls/         authority.h
 *     config.yaml  the SDK's defaults
 */
#ifndef SHOAL_HTTP_HOME_H
#define SHOAL_HTTP_HOME_H

#include <stddef.h>

#include "shoal.h"

#define HTTP_HOME_PATH_BYTES    3072
#define HTTP_HOME_ADDRESS_BYTES 128
#define HTTP_HOME_URL_BYTES     160
#define HTTP_HOME_LISTEN        "127.0.0.1:7800" /* where nobody says otherwise */

struct http_home;

/* "$XDG_DATA_HOME/shoal", by default "$HOME/.local/share/shoal". SHOAL_ERR_ARGUMENT without either.
 */
enum shoal_status http_home_default(char *path, size_t bytes);
/* Makes the directory, for its owner only, and takes it. SHOAL_ERR_STATE names the service that has
 * it: its address and process. */
enum shoal_status http_home_open(const char *path, struct http_home **out);
/* Its absolute path. */
const char *http_home_path(const struct http_home *home);
/* "<its path>/name". */
enum shoal_status http_home_file(const char *path, const char *name, char *out, size_t bytes);
/* How the service is spoken to. */
enum http_home_scheme {
    HTTP_HOME_PLAIN,
    HTTP_HOME_TLS,      /* only, and clients trust DIR/tls/authority.pem */
    HTTP_HOME_TLS_GIVEN /* only, and clients trust who signed the certificate that it was given */
};
/* Tells clients where the service is. */
enum shoal_status http_home_announce(struct http_home *home, const char *address,
                                     enum http_home_scheme scheme);
/* NULL is allowed. */
void http_home_close(struct http_home *home);
/* Where the directory's service is; SHOAL_ERR_STATE if none runs. */
enum shoal_status http_home_address(const char *path, char *address, size_t bytes);
/* The same for clients on this machine: "http://127.0.0.1:7800" or "https://…" (HTTP_HOME_URL_BYTES
 * suffice). Of a service that listens on all addresses, the loopback's. */
enum shoal_status http_home_url(const char *path, char *url, size_t bytes,
                                enum http_home_scheme *scheme);
/* Whether only its owner may use an open file of secrets: SHOAL_ERR_SYSTEM with `chmod`. */
enum shoal_status http_home_secret_check(const char *path, int fd);

#endif
