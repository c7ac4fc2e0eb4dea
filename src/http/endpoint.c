/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c: address, keys and region out of options, variables and files, in the stated order. */
#include "http/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "http/home.h"
#include "http/profile.h"

#define VARIABLE_BYTES 64
#define REGION         "us-east-1"

/* A variable that is set to something, else NULL. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static enum shoal_status text_set(char *out, size_t bytes, const char *value, const char *what)
{
    if (strlen(value) >= bytes)
        return base_error(SHOAL_ERR_ARGUMENT, "%s is longer than %zu bytes", what, bytes - 1);
    memcpy(out, value, strlen(value) + 1);
    return SHOAL_OK;
}

/* ---- files of the AWS tools ------------------------------------------------------------------
 */

struct profile {
    char name[128];
    char credentials[HTTP_HOME_PATH_BYTES], config[HTTP_HOME_PATH_BYTES];
};

static void file_find(const char *given, const char *usual, char *out, size_t bytes)
{
    const char *home = variable("HOME");
    if (variable(given) != NULL)
        snprintf(out, bytes, "%s", variable(given));
    else
        snprintf(out, bytes, "%s/.aws/%s", home != NULL ? home : "", usual);
}

static enum shoal_status profile_find(const char *wished, struct profile *out)
{
    const char *name = wished != NULL ? wished : variable("AWS_PROFILE");
    TRY(text_set(out->name, sizeof(out->name), name != NULL ? name : "default",
                 "the profile's name"));
    file_find("AWS_SHARED_CREDENTIALS_FILE", "credentials", out->credentials,
              sizeof(out->credentials));
    file_find("AWS_CONFIG_FILE", "config", out->config, sizeof(out->config));
    return SHOAL_OK;
}

/* Sections of the configuration are "[profile NAME]", but for the default one's. */
static enum shoal_status config_value(const struct profile *profile, const char *name, char *out,
                                      size_t bytes)
{
    char section[sizeof(profile->name) + 16];
    bool is_default = strcmp(profile->name, "default") == 0;
    snprintf(section, sizeof(section), "%s%s", is_default ? "" : "profile ", profile->name);
    return http_profile_read(profile->config, section, name, out, bytes);
}

/* ---- addresses -------------------------------------------------------------------------------
 */

static const char *host_of(const char *url)
{
    if (strncmp(url, "http://", 7) == 0)
        return url + 7;
    return strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
}

static enum shoal_status url_wrong(const char *url, const char *whence)
{
    return base_error(SHOAL_ERR_ARGUMENT,
                      "the address '%s' (%s) is not of the form http://HOST:PORT or https://HOST",
                      url, whence);
}

enum shoal_status http_endpoint_set_url(struct http_endpoint *endpoint, const char *url,
                                        const char *whence)
{
    size_t length = strlen(url);
    const char *host = host_of(url);
    while (length > 0 && url[length - 1] == '/')
        length--;
    if (host == NULL || host >= url + length || *host == '/' || *host == ':' ||
        strpbrk(host, "?#@ \t\r\n\"\\") != NULL || length >= sizeof(endpoint->url))
        return url_wrong(url, whence);
    memcpy(endpoint->url, url, length);
    endpoint->url[length] = '\0';
    snprintf(endpoint->whence, sizeof(endpoint->whence), "%s", whence);
    return SHOAL_OK;
}

bool http_endpoint_is_here(const struct http_endpoint *endpoint)
{
    const char *host = host_of(endpoint->url);
    bool is_six = host[0] == '[';
    char name[INET6_ADDRSTRLEN];
    struct in_addr four;
    struct in6_addr six;
    size_t length = is_six ? strcspn(++host, "]/") : strcspn(host, ":/");
    if (length >= sizeof(name))
        return false;
    memcpy(name, host, length);
    name[length] = '\0';
    if (is_six)
        return host[length] == ']' && inet_pton(AF_INET6, name, &six) == 1 &&
               IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(name, "localhost") == 0 ||
           (inet_pton(AF_INET, name, &four) == 1 && ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET);
}

bool http_endpoint_is_private(const struct http_endpoint *endpoint)
{
    return strncmp(endpoint->url, "https:", 6) == 0 || http_endpoint_is_here(endpoint);
}

/* The service that runs in a directory. Its own authority is the one to trust, where it has one. */
static enum shoal_status home_url(const char *dir, struct http_endpoint *out)
{
    char url[HTTP_ENDPOINT_URL_BYTES], whence[HTTP_ENDPOINT_WHENCE_BYTES];
    enum http_home_scheme scheme;
    TRY(http_home_url(dir, url, sizeof(url), &scheme));
    snprintf(whence, sizeof(whence), "the service in %.256s", dir);
    TRY(http_endpoint_set_url(out, url, whence));
    out->authorities[0] = '\0';
    return scheme == HTTP_HOME_TLS ? http_home_file(dir, "tls/authority.pem", out->authorities,
                                                    sizeof(out->authorities))
                                   : SHOAL_OK;
}

static enum shoal_status home_keys(const char *dir, struct http_endpoint *out)
{
    char path[HTTP_HOME_PATH_BYTES + 16];
    struct http_keys *keys;
    TRY(http_home_file(dir, "keys", path, sizeof(path)));
    TRY(http_keys_load(path, &keys));
    if (http_keys_first(keys) != NULL)
        out->key = *http_keys_first(keys);
    http_keys_free(keys);
    return SHOAL_OK;
}

/* "AWS_ENDPOINT_URL_S3". */
static const char *own_variable(const char *service, char name[VARIABLE_BYTES])
{
    snprintf(name, VARIABLE_BYTES, "AWS_ENDPOINT_URL_%s", service);
    for (char *at = name; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
    return variable(name);
}

static enum shoal_status no_address(void)
{
    return base_error(SHOAL_ERR_STATE,
                      "no service is known: start `shoal serve`, or say where one is by --dir, "
                      "--endpoint or AWS_ENDPOINT_URL");
}

static enum shoal_status url_find(const struct http_endpoint_wish *wish,
                                  const struct profile *profile, struct http_endpoint *out)
{
    if (variable("AWS_CA_BUNDLE") != NULL)
        TRY(text_set(out->authorities, sizeof(out->authorities), variable("AWS_CA_BUNDLE"),
                     "AWS_CA_BUNDLE"));
    char name[VARIABLE_BYTES], url[HTTP_ENDPOINT_URL_BYTES], dir[HTTP_HOME_PATH_BYTES];
    if (wish->url != NULL)
        return http_endpoint_set_url(out, wish->url, "--endpoint");
    if (wish->dir != NULL)
        return home_url(wish->dir, out);
    if (wish->service != NULL && own_variable(wish->service, name) != NULL)
        return http_endpoint_set_url(out, variable(name), name);
    if (variable("AWS_ENDPOINT_URL") != NULL)
        return http_endpoint_set_url(out, variable("AWS_ENDPOINT_URL"), "AWS_ENDPOINT_URL");
    TRY(config_value(profile, "endpoint_url", url, sizeof(url)));
    if (url[0] != '\0')
        return http_endpoint_set_url(out, url, profile->config);
    if (http_home_default(dir, sizeof(dir)) == SHOAL_OK && home_url(dir, out) == SHOAL_OK)
        return SHOAL_OK;
    return no_address();
}

/* ---- keys --------------------------------------------------------------------------------------
 */

static enum shoal_status key_set(struct http_endpoint *out, const char *id, const char *secret,
                                 const char *token, const char *whence)
{
    if (id[0] == '\0' || secret[0] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "%s has one half of a key pair only", whence);
    TRY(text_set(out->key.id, sizeof(out->key.id), id, "the key's id"));
    TRY(text_set(out->key.secret, sizeof(out->key.secret), secret, "the key's secret"));
    return text_set(out->token, sizeof(out->token), token, "the session's token");
}

static enum shoal_status environment_keys(struct http_endpoint *out)
{
    const char *id = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY"),
               *token = variable("AWS_SESSION_TOKEN");
    if (id == NULL && secret == NULL)
        return SHOAL_OK;
    return key_set(out, id != NULL ? id : "", secret != NULL ? secret : "",
                   token != NULL ? token : "", "the environment (AWS_ACCESS_KEY_ID)");
}

static enum shoal_status profile_keys(const struct profile *profile, struct http_endpoint *out)
{
    char id[HTTP_KEY_ID_BYTES], secret[HTTP_KEY_SECRET_BYTES], token[HTTP_ENDPOINT_TOKEN_BYTES];
    const char *file = profile->credentials;
    TRY(http_profile_read(file, profile->name, "aws_access_key_id", id, sizeof(id)));
    TRY(http_profile_read(file, profile->name, "aws_secret_access_key", secret, sizeof(secret)));
    TRY(http_profile_read(file, profile->name, "aws_session_token", token, sizeof(token)));
    return id[0] == '\0' && secret[0] == '\0' ? SHOAL_OK : key_set(out, id, secret, token, file);
}

/* The default directory's, if its service is the one that is spoken to. */
static void neighbour_keys(struct http_endpoint *out)
{
    char dir[HTTP_HOME_PATH_BYTES];
    struct http_endpoint own = {0};
    if (http_home_default(dir, sizeof(dir)) == SHOAL_OK && home_url(dir, &own) == SHOAL_OK &&
        strcmp(own.url, out->url) == 0)
        (void)home_keys(dir, out); /* without keys requests go unsigned, and the refusal says so */
}

static enum shoal_status keys_find(const struct http_endpoint_wish *wish,
                                   const struct profile *profile, struct http_endpoint *out)
{
    if (wish->dir != NULL)
        return home_keys(wish->dir, out);
    if (wish->profile == NULL)
        TRY(environment_keys(out));
    if (out->key.id[0] == '\0')
        TRY(profile_keys(profile, out));
    if (out->key.id[0] == '\0')
        neighbour_keys(out);
    return SHOAL_OK;
}

static enum shoal_status region_find(const struct http_endpoint_wish *wish,
                                     const struct profile *profile, struct http_endpoint *out)
{
    const char *given = wish->region != NULL             ? wish->region
                        : variable("AWS_REGION") != NULL ? variable("AWS_REGION")
                                                         : variable("AWS_DEFAULT_REGION");
    if (given != NULL)
        return text_set(out->region, sizeof(out->region), given, "the region's name");
    TRY(config_value(profile, "region", out->region, sizeof(out->region)));
    if (out->region[0] == '\0')
        memcpy(out->region, REGION, sizeof(REGION));
    return SHOAL_OK;
}

enum shoal_status http_endpoint_find(const struct http_endpoint_wish *wish,
                                     struct http_endpoint *out)
{
    struct profile profile;
    struct http_endpoint found = {0};
    TRY(profile_find(wish->profile, &profile));
    TRY(url_find(wish, &profile, &found));
    TRY(keys_find(wish, &profile, &found));
    TRY(region_find(wish, &profile, &found));
    *out = found;
    return SHOAL_OK;
}
