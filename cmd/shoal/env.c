/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: `shoal env`: what a shell must know to be a client of the service. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/status.h"
#include "http/home.h"
#include "http/identity.h"
#include "http/keys.h"

int cmd_env(int argc, char **argv);

#define REGION "us-east-1"

enum { ENV_DIR, ENV_LISTEN, ENV_HELP };

static const struct argument table[] = {
    [ENV_DIR] = {"dir", 'd', "DIR", "the service's directory (default ~/.local/share/shoal)"},
    [ENV_LISTEN] = {"listen", 'l', "HOST:PORT",
                    "where the service answers (default: where it runs\n"
                    "now, else " HTTP_HOME_LISTEN ")"},
    [ENV_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct env {
    const char *dir_given, *listen;
    bool wants_help;
    char dir[PATH_MAX];
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
    printf("\nexample:\n"
           "  eval \"$(shoal env)\"\n");
}

/* In single quotes, in which a shell reads everything but the quote itself as it stands. */
static void export_print(const char *name, const char *value)
{
    printf("export %s='", name);
    for (; *value != '\0'; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    puts("'");
}

static enum shoal_status dir_find(struct env *env)
{
    char path[HTTP_HOME_PATH_BYTES];
    if (env->dir_given == NULL)
        TRY(http_home_default(path, sizeof(path)));
    const char *dir = env->dir_given != NULL ? env->dir_given : path;
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
static void url_find(const struct env *env, char *url, size_t bytes)
{
    char address[HTTP_HOME_ADDRESS_BYTES];
    if (env->listen == NULL && http_home_address(env->dir, address, sizeof(address)) != SHOAL_OK) {
        fprintf(stderr, "shoal env: %s; taking %s for its address\n", base_error_text(),
                HTTP_HOME_LISTEN);
        snprintf(address, sizeof(address), "%s", HTTP_HOME_LISTEN);
    }
    const char *at = env->listen != NULL ? env->listen : address;
    bool is_any = strncmp(at, "0.0.0.0:", 8) == 0;
    snprintf(url, bytes, "http://%s%s", is_any ? "127.0.0.1" : "", is_any ? at + 7 : at);
}

static enum shoal_status env_run(struct env *env)
{
    char keys_path[PATH_MAX + 16], config[PATH_MAX + 16], url[512];
    struct http_keys *keys;
    TRY(dir_find(env));
    TRY(http_home_file(env->dir, "keys", keys_path, sizeof(keys_path)));
    TRY(http_keys_make(keys_path));
    TRY(http_keys_load(keys_path, &keys));
    enum shoal_status status = config_make(env, config, sizeof(config));
    if (status == SHOAL_OK) {
        url_find(env, url, sizeof(url));
        export_print("AWS_ENDPOINT_URL", url);
        export_print("AWS_ACCESS_KEY_ID", http_keys_first(keys)->id);
        export_print("AWS_SECRET_ACCESS_KEY", http_keys_first(keys)->secret);
        export_print("AWS_REGION", REGION);
        export_print("AWS_DEFAULT_REGION", REGION);
        export_print("AWS_EC2_METADATA_DISABLED", "true");
        export_print("SAGEMAKER_USER_CONFIG_OVERRIDE", config);
        puts("unset AWS_SESSION_TOKEN AWS_PROFILE");
    }
    http_keys_free(keys);
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
