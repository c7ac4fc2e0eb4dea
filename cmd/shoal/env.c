/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: `shoal env`: what a shell must know to be a client of the service. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "http/authority.h"
#include "http/home.h"
#include "http/identity.h"
#include "http/keys.h"

int cmd_env(int argc, char **argv);

#define REGION        "us-east-1"
#define AWAIT_MS      3000 /* for a service that the line before has started */
#define AWAIT_POLL_MS 10

enum { ENV_DIR, ENV_LISTEN, ENV_FRONT, ENV_JSON, ENV_HELP };

static const struct argument table[] = {
    [ENV_DIR] = {"dir", 'd', "DIR", "the service's directory (default ~/.local/share/shoal)"},
    [ENV_LISTEN] = {"listen", 'l', "HOST:PORT",
                    "where the service answers (default: where it runs\n"
                    "now, else " HTTP_HOME_LISTEN ")"},
    [ENV_FRONT] = {"front", 'f', NULL,
                   "also for scripts that call hosts of amazonaws.com by\n"
                   "name: all HTTPS of the shell goes to the service, which\n"
                   "stands for these hosts and refuses others"},
    [ENV_JSON] = {"json", 0, NULL,
                  "as a JSON object, for programs that are no shell; null:\n"
                  "the variable has to go"},
    [ENV_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct env {
    const char *dir_given, *listen;
    bool wants_front, wants_json, wants_help;
    json_t *json; /* the variables, if they are wanted so */
    enum http_home_scheme scheme;
    char dir[PATH_MAX], url[HTTP_HOME_URL_BYTES];
};

/* Defaults of the SDK: with a bucket and a role it asks nobody for them. */
static const char config_text[] =
    "# Defaults of the SageMaker SDK for the service in this directory.\n"
    "# Made once; change it as you like.\n"
    "SchemaVersion: '1.0'\n"
    "SageMaker:\n"
    "  PythonSDK:\n"
    "    Modules:\n"
    "      TelemetryOptOut: true\n"
    "      Session:\n"
    "        DefaultS3Bucket: shoal\n"
    "      RemoteFunction:\n"
    "        RoleArn: " HTTP_ROLE_ARN "\n"
    "  TrainingJob:\n"
    "    RoleArn: " HTTP_ROLE_ARN "\n"
    "  ProcessingJob:\n"
    "    RoleArn: " HTTP_ROLE_ARN "\n"
    "  Model:\n"
    "    ExecutionRoleArn: " HTTP_ROLE_ARN "\n"
    "  Pipeline:\n"
    "    RoleArn: " HTTP_ROLE_ARN "\n";

static enum shoal_status take(void *user, int id, const char *value)
{
    struct env *env = user;
    switch (id) {
    case ENV_DIR: env->dir_given = value; break;
    case ENV_LISTEN: env->listen = value; break;
    case ENV_FRONT: env->wants_front = true; break;
    case ENV_JSON: env->wants_json = true; break;
    default: env->wants_help = true; break;
    }
    return SHOAL_OK;
}

static void help_print(void)
{
    printf(
        "usage: shoal env [OPTION...]\n\n"
        "Prints the variables with which the SageMaker SDK, boto3 and the AWS command line talk\n"
        "to `shoal serve`: address, keys, region, and the SDK's defaults (DIR/config.yaml, made\n"
        "if it is not there).\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf(
        "\nexample:\n"
        "  eval \"$(shoal env)\"\n\n"
        "The front (--front) is for scripts that can't be told where the service is: those that\n"
        "let the SDK find out its role and account, which it asks of a fixed host. The shell's\n"
        "other HTTPS, such as downloads, is refused meanwhile, unless NO_PROXY names the host.\n");
}

/* In single quotes, in which a shell reads everything but the quote itself as it stands. */
static void quoted_print(const char *name, const char *value)
{
    printf("%s='", name);
    for (; *value != '\0'; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    puts("'");
}

static void export_print(const struct env *env, const char *name, const char *value)
{
    if (env->json != NULL) {
        json_object_set_new(env->json, name, json_string(value));
        return;
    }
    printf("export ");
    quoted_print(name, value);
}

static void unset_print(const struct env *env, const char *name)
{
    if (env->json != NULL)
        json_object_set_new(env->json, name, json_null());
    else
        printf("unset %s\n", name);
}

/* "shoal serve &" and this command are often one paste: what is just being started is not yet
 * there. */
static void service_await(const char *dir)
{
    char url[HTTP_HOME_URL_BYTES];
    enum http_home_scheme scheme;
    int64_t deadline_ns = base_deadline_ns(AWAIT_MS);
    while (http_home_url(dir, url, sizeof(url), &scheme) != SHOAL_OK &&
           base_left_ms(deadline_ns) > 0)
        base_sleep_ms(AWAIT_POLL_MS);
}

static enum shoal_status dir_find(struct env *env)
{
    char path[HTTP_HOME_PATH_BYTES];
    if (env->dir_given == NULL)
        TRY(http_home_default(path, sizeof(path)));
    const char *dir = env->dir_given != NULL ? env->dir_given : path;
    if (env->listen == NULL || access(dir, F_OK) != 0)
        service_await(dir);
    if (realpath(dir, env->dir) == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                "there is no service's directory %s (shoal serve makes it)", dir);
    return SHOAL_OK;
}

/* Made under another name, so that a reader finds all of it or nothing. */
static enum shoal_status config_make(const struct env *env, char *path, size_t bytes)
{
    char fresh[PATH_MAX + 32];
    TRY(http_home_file(env->dir, "config.yaml", path, bytes));
    if (access(path, F_OK) == 0)
        return SHOAL_OK;
    TRY(http_home_file(env->dir, "config.yaml.new", fresh, sizeof(fresh)));
    FILE *file = fopen(fresh, "we");
    if (file == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", fresh);
    bool written = fputs(config_text, file) >= 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(fresh, path) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
    return SHOAL_OK;
}

/* Where the service is; without it, where it is by default. */
static enum shoal_status url_find(struct env *env)
{
    bool has_scheme = env->listen != NULL && strstr(env->listen, "://") != NULL;
    if (env->listen != NULL) {
        snprintf(env->url, sizeof(env->url), "%s%s", has_scheme ? "" : "http://", env->listen);
        env->scheme = strncmp(env->url, "https:", 6) == 0 ? HTTP_HOME_TLS : HTTP_HOME_PLAIN;
    } else if (http_home_url(env->dir, env->url, sizeof(env->url), &env->scheme) != SHOAL_OK) {
        fprintf(stderr, "shoal env: %s; taking %s for its address\n", base_error_text(),
                HTTP_HOME_LISTEN);
        snprintf(env->url, sizeof(env->url), "http://" HTTP_HOME_LISTEN);
    }
    if (strlen(env->url) + 1 == sizeof(env->url))
        return base_error(SHOAL_ERR_ARGUMENT, "the address given with --listen is too long");
    return SHOAL_OK;
}

/* In both spellings: of a variable that the user has in lower case, programs take that one. */
static void both_print(const struct env *env, const char *upper, const char *lower,
                       const char *value)
{
    export_print(env, upper, value);
    export_print(env, lower, value);
}

/* For programs, which have this one's environment: the same list. */
static void no_proxy_collect(const struct env *env, const char *host)
{
    const char *before = getenv("NO_PROXY");
    size_t bytes = strlen(host);
    bool has_some = before != NULL && before[0] != '\0', has_host = false;
    for (const char *at = before; has_some && at != NULL && !has_host; at = strchr(at, ',')) {
        at += *at == ',';
        has_host = strncmp(at, host, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0');
    }
    json_t *list = has_host || !has_some ? json_string(has_host ? before : host)
                                         : json_sprintf("%s,%s", before, host);
    json_object_set(env->json, "NO_PROXY", list);
    json_object_set_new(env->json, "no_proxy", list);
}

/* What must not go through a proxy: this service, and what was excepted before. */
static void no_proxy_print(const struct env *env)
{
    char host[HTTP_HOME_URL_BYTES];
    const char *at = strstr(env->url, "://") + 3;
    bool is_v6 = *at == '[';
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(at + is_v6, is_v6 ? "]" : ":/"), at + is_v6);
    if (env->json != NULL) {
        no_proxy_collect(env, host);
        return;
    }
    quoted_print("shoal_service_host", host);
    /* Also for shells that take an unset variable for an error. */
    puts("case \",${NO_PROXY-},\" in *\",$shoal_service_host,\"*) ;; *) "
         "NO_PROXY=\"${NO_PROXY:+$NO_PROXY,}$shoal_service_host\" ;; esac");
    puts("export NO_PROXY no_proxy=\"$NO_PROXY\"; unset shoal_service_host");
}

/* Whose certificates to trust: the directory's own authority, where it issues those that are shown.
 */
static enum shoal_status authority_print(const struct env *env)
{
    struct http_authority *authority;
    TRY(http_authority_open(env->dir, &authority));
    export_print(env, "AWS_CA_BUNDLE", http_authority_path(authority));
    if (env->wants_front)
        export_print(env, "REQUESTS_CA_BUNDLE", http_authority_path(authority));
    http_authority_free(authority);
    return SHOAL_OK;
}

/* The front is a proxy at the service's own address. */
static void front_print(const struct env *env)
{
    char proxy[HTTP_HOME_URL_BYTES + 8];
    snprintf(proxy, sizeof(proxy), "http%s", strstr(env->url, "://"));
    both_print(env, "HTTPS_PROXY", "https_proxy", proxy);
}

static void client_print(const struct env *env, const struct http_key *key, const char *config)
{
    if (env->wants_front && env->scheme == HTTP_HOME_TLS_GIVEN)
        unset_print(env, "AWS_ENDPOINT_URL"); /* one bundle of authorities serves the front alone */
    else
        export_print(env, "AWS_ENDPOINT_URL", env->url);
    export_print(env, "AWS_ACCESS_KEY_ID", key->id);
    export_print(env, "AWS_SECRET_ACCESS_KEY", key->secret);
    export_print(env, "AWS_REGION", REGION);
    export_print(env, "AWS_DEFAULT_REGION", REGION);
    export_print(env, "AWS_EC2_METADATA_DISABLED", "true");
    export_print(env, "SAGEMAKER_USER_CONFIG_OVERRIDE", config);
    unset_print(env, "AWS_SESSION_TOKEN");
    unset_print(env, "AWS_PROFILE");
    no_proxy_print(env);
}

static enum shoal_status env_run(struct env *env)
{
    char keys_path[PATH_MAX + 16], config[PATH_MAX + 16];
    struct http_keys *keys;
    TRY(dir_find(env));
    TRY(url_find(env));
    TRY(config_make(env, config, sizeof(config)));
    TRY(http_home_file(env->dir, "keys", keys_path, sizeof(keys_path)));
    TRY(http_keys_make(keys_path));
    TRY(http_keys_load(keys_path, &keys));
    env->json = env->wants_json ? json_object() : NULL;
    client_print(env, http_keys_first(keys), config);
    http_keys_free(keys);
    if (env->wants_front)
        front_print(env);
    enum shoal_status status =
        env->wants_front || env->scheme == HTTP_HOME_TLS ? authority_print(env) : SHOAL_OK;
    if (env->json != NULL && status == SHOAL_OK) {
        json_dumpf(env->json, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(env->json);
    return status;
}

int cmd_env(int argc, char **argv)
{
    struct env env = {0};
    struct arguments arguments = {.command = "env",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &env,
                                  .at = 1};
    enum shoal_status status = arguments_take_all(&arguments);
    if (status == SHOAL_OK && env.wants_help) {
        help_print();
        return 0;
    }
    return arguments_exit("env", status == SHOAL_OK ? env_run(&env) : status);
}
