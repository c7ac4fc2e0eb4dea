/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.h: where a client sends its requests, and with whose keys it signs them.
 *
 * Looked for in this order:
 *
 *     address   --endpoint; the service of --dir; AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL;
 *               endpoint_url of the profile; the service that runs in the default directory
 *     keys      of --dir's service: its file of keys. Else AWS_ACCESS_KEY_ID,
 *               AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the profile's in the shared
 *               credentials file; else those of the default directory, if its service has the
 *               address; else none, and requests go unsigned
 *     region    AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1
 *
 *     trust     tls/authority.pem of --dir's service, if that issues its certificate;
 * AWS_CA_BUNDLE; the system's authorities
 *
 * The profile is AWS_PROFILE or "default", in ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and
 * ~/.aws/config (AWS_CONFIG_FILE).
 */
#ifndef SHOAL_HTTP_ENDPOINT_H
#define SHOAL_HTTP_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "http/home.h"
#include "http/keys.h"
#include "shoal.h"

#define HTTP_ENDPOINT_URL_BYTES    512
#define HTTP_ENDPOINT_TOKEN_BYTES  4096
#define HTTP_ENDPOINT_REGION_BYTES 65
#define HTTP_ENDPOINT_WHENCE_BYTES 320

struct http_endpoint {
    char url[HTTP_ENDPOINT_URL_BYTES];       /* "http://127.0.0.1:7800": no '/' at its end */
    struct http_key key;                     /* its id is "": requests go unsigned */
    char token[HTTP_ENDPOINT_TOKEN_BYTES];   /* of a session, or "" */
    char region[HTTP_ENDPOINT_REGION_BYTES]; /* never empty */
    char authorities[HTTP_HOME_PATH_BYTES +
                     32];                    /* a file of certificates to trust; "": the system's */
    char whence[HTTP_ENDPOINT_WHENCE_BYTES]; /* who said the address, for errors */
};

/* What a caller knows already; each may be NULL. */
struct http_endpoint_wish {
    const char *service; /* "s3", "sagemaker": its own variable, AWS_ENDPOINT_URL_S3 */
    const char *url;     /* --endpoint */
    const char *dir;     /* --dir */
    const char *profile; /* --profile */
    const char *region;  /* --region */
};

/* SHOAL_ERR_STATE: no address anywhere, or no service runs in `dir`; SHOAL_ERR_ARGUMENT and
 * SHOAL_ERR_FORMAT name what is wrong with an address, a variable or a line of a file. */
enum shoal_status http_endpoint_find(const struct http_endpoint_wish *wish,
                                     struct http_endpoint *out);
/* An address alone: "http://HOST[:PORT]" or "https://…", without a user, query or fragment. */
enum shoal_status http_endpoint_set_url(struct http_endpoint *endpoint, const char *url,
                                        const char *whence);
/* Whether it is this machine, by a loopback address. */
bool http_endpoint_is_here(const struct http_endpoint *endpoint);
/* Whether what is sent stays in this machine or is encrypted. */
bool http_endpoint_is_private(const struct http_endpoint *endpoint);

#endif
