/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: `shoal serve`: the job service, until it is told to end. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/status.h"
#include "boot/address.h"
#include "http/home.h"
#include "http/http.h"
#include "http/identity.h"
#include "http/keys.h"
#include "job/limits.h"
#include "json_text.h"
#include "logs/protocol.h"
#include "s3/protocol.h"
#include "service/service.h"

int cmd_serve(int argc, char **argv);

enum {
    SERVE_DIR,
    SERVE_LISTEN,
    SERVE_NO_AUTH,
    SERVE_TLS,
    SERVE_TLS_CERTIFICATE,
    SERVE_TLS_KEY,
    SERVE_JSON,
    SERVE_HELP
};

static const struct argument table[] = {
    [SERVE_DIR] = {"dir", 'd', "DIR",
                   "where everything is kept (default ~/.local/share/shoal);\n"
                   "one service at a time"},
    [SERVE_LISTEN] = {"listen", 'l', "HOST:PORT",
                      "where it answers (default " HTTP_HOME_LISTEN ";\n"
                      "port 0: any that is free)"},
    [SERVE_NO_AUTH] = {"no-auth", 0, NULL,
                       "serve everyone, unsigned too; only on this machine's\n"
                       "own addresses (127.0.0.1, ::1)"},
    [SERVE_TLS] = {"tls", 0, NULL,
                   "speak TLS only with other machines, with a certificate of\n"
                   "the directory's own authority (DIR/tls/authority.pem)"},
    [SERVE_TLS_CERTIFICATE] = {"tls-cert", 0, "FILE", "the same with this certificate (PEM)"},
    [SERVE_TLS_KEY] = {"tls-key", 0, "FILE", "and its key"},
    [SERVE_JSON] = {"json", 0, NULL, "print address, directory and process as JSON"},
    [SERVE_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

struct serve {
    char dir[HTTP_HOME_PATH_BYTES], host[BOOT_ADDRESS_HOST_BYTES];
    int port;
    bool is_open, is_tls, wants_json, wants_help;
    const char *certificate, *key;
    struct http_home *home;
    struct http_keys *keys;
    struct s3_store *store;
    struct s3_protocol s3;
    struct logs *logs;
    struct logs_protocol *logs_protocol;
    struct service *jobs;
    struct http_server *server;
};

static enum shoal_status take(void *user, int id, const char *value)
{
    struct serve *serve = user;
    switch (id) {
    case SERVE_DIR:
        if (snprintf(serve->dir, sizeof(serve->dir), "%s", value) >= (int)sizeof(serve->dir))
            return base_error(SHOAL_ERR_ARGUMENT, "the path given with --dir is too long");
        break;
    case SERVE_LISTEN: return boot_address_split(value, serve->host, &serve->port);
    case SERVE_NO_AUTH: serve->is_open = true; break;
    case SERVE_TLS_CERTIFICATE: serve->certificate = value; break;
    case SERVE_TLS_KEY: serve->key = value; break;
    case SERVE_TLS: break;
    case SERVE_JSON: serve->wants_json = true; break;
    default: serve->wants_help = true; break;
    }
    serve->is_tls |= id == SERVE_TLS || id == SERVE_TLS_CERTIFICATE || id == SERVE_TLS_KEY;
    return SHOAL_OK;
}

static void help_print(void)
{
    printf(
        "usage: shoal serve [OPTION...]\n\n"
        "The job service: it answers what the SageMaker SDK, boto3 and the AWS command line ask\n"
        "for, on this machine. Prints its address when it is ready, and runs until SIGTERM or\n"
        "Ctrl-C.\n\n");
    arguments_help(table, TABLE_COUNT, stdout);
    printf(
        "\nexample:\n"
        "  shoal serve --dir ~/shoal &\n"
        "  eval \"$(shoal env --dir ~/shoal)\"\n"
        "  aws s3 mb s3://data\n\n"
        "The access keys are in DIR/keys, one `KEY SECRET [NAME]` a line; the first start makes\n"
        "a pair.\n");
}

static enum shoal_status prepare(struct serve *serve)
{
    char keys[HTTP_HOME_PATH_BYTES + 16], store[HTTP_HOME_PATH_BYTES + 16];
    char logs[HTTP_HOME_PATH_BYTES + 16];
    if (serve->is_open && !boot_address_host_is_loopback(serve->host))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--no-auth would let everyone in who reaches %s: it goes with this "
                          "machine's own addresses only, such as 127.0.0.1",
                          serve->host);
    if ((serve->certificate == NULL) != (serve->key == NULL))
        return base_error(SHOAL_ERR_ARGUMENT, "--tls-cert and --tls-key go together");
    if (serve->dir[0] == '\0')
        TRY(http_home_default(serve->dir, sizeof(serve->dir)));
    TRY(http_home_open(serve->dir, &serve->home));
    TRY(http_home_file(http_home_path(serve->home), "keys", keys, sizeof(keys)));
    TRY(http_keys_make(keys));
    TRY(http_keys_load(keys, &serve->keys));
    TRY(http_home_file(http_home_path(serve->home), "s3", store, sizeof(store)));
    TRY(s3_store_open(store, &serve->store));
    serve->s3.store = serve->store;
    TRY(http_home_file(http_home_path(serve->home), "logs", logs, sizeof(logs)));
    TRY(logs_open(logs, &serve->logs));
    TRY(logs_protocol_create(serve->logs, &serve->logs_protocol));
    const struct http_key *key = http_keys_first(serve->keys);
    struct service_options jobs = {.directory = http_home_path(serve->home),
                                   .store = serve->store,
                                   .logs = serve->logs,
                                   .key_id = key->id,
                                   .secret = key->secret};
    return service_open(&jobs, &serve->jobs);
}

/* It is ready. */
static enum shoal_status address_print(const struct serve *serve)
{
    const char *scheme = serve->is_tls ? "https" : "http";
    const char *address = http_server_address(serve->server);
    if (serve->wants_json) {
        printf("{\"address\": \"%s://%s\", \"directory\": ", scheme, address);
        json_print_string(http_home_path(serve->home), stdout);
        printf(", \"process\": %d}\n", (int)getpid());
    } else {
        printf("%s://%s\n", scheme, address);
    }
    if (fflush(stdout) != 0)
        return base_error(SHOAL_ERR_SYSTEM, "cannot write to stdout");
    return SHOAL_OK;
}

static enum shoal_status start(struct serve *serve)
{
    struct http_tls tls = {.dir = http_home_path(serve->home),
                           .certificate_path = serve->certificate,
                           .key_path = serve->key,
                           .is_only = serve->is_tls};
    struct http_options options = {.host = serve->host,
                                   .port = serve->port,
                                   .keys = serve->is_open ? NULL : serve->keys,
                                   .tls = &tls,
                                   .limits = HTTP_LIMITS_INIT};
    options.handlers[HTTP_S3] = s3_protocol_handler();
    options.users[HTTP_S3] = &serve->s3;
    options.handlers[HTTP_SAGEMAKER] = service_handler();
    options.users[HTTP_SAGEMAKER] = serve->jobs;
    const enum http_service of_logs[] = {HTTP_LOGS, HTTP_MONITORING, HTTP_MONITORING_QUERY};
    for (size_t i = 0; i < sizeof(of_logs) / sizeof(of_logs[0]); i++) {
        options.handlers[of_logs[i]] = logs_protocol_handler();
        options.users[of_logs[i]] = serve->logs_protocol;
    }
    options.handlers[HTTP_STS] = options.handlers[HTTP_IAM] = &http_identity_handler;
    enum http_home_scheme scheme = !serve->is_tls               ? HTTP_HOME_PLAIN
                                   : serve->certificate == NULL ? HTTP_HOME_TLS
                                                                : HTTP_HOME_TLS_GIVEN;
    TRY(http_server_start(&options, &serve->server));
    /* Jobs look for it there. */
    TRY(http_home_announce(serve->home, http_server_address(serve->server), scheme));
    TRY(service_start(serve->jobs, http_server_address(serve->server)));
    return address_print(serve);
}

/* Blocked before any thread is made, so that all of them leave these signals to sigwait. */
static void signals_hold(sigset_t *ends)
{
    sigemptyset(ends);
    sigaddset(ends, SIGTERM);
    sigaddset(ends, SIGINT);
    sigaddset(ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, ends, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum shoal_status serve_run(struct serve *serve)
{
    sigset_t ends;
    int came = 0;
    signals_hold(&ends);
    job_limits_prepare();
    enum shoal_status status = prepare(serve);
    if (status == SHOAL_OK)
        status = start(serve);
    if (status == SHOAL_OK)
        sigwait(&ends, &came);
    http_server_stop(serve->server);
    if (!service_close(serve->jobs))
        _exit(0); /* the next service takes up what is under way */
    logs_protocol_free(serve->logs_protocol);
    logs_close(serve->logs);
    if (serve->store != NULL)
        s3_store_close(serve->store);
    http_keys_free(serve->keys);
    http_home_close(serve->home);
    return status;
}

int cmd_serve(int argc, char **argv)
{
    struct serve serve = {0};
    struct arguments arguments = {.command = "serve",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &serve,
                                  .at = 1};
    enum shoal_status status = boot_address_split(HTTP_HOME_LISTEN, serve.host, &serve.port);
    if (status == SHOAL_OK)
        status = arguments_take_all(&arguments);
    if (status == SHOAL_OK && serve.wants_help) {
        help_print();
        return 0;
    }
    return arguments_exit("serve", status == SHOAL_OK ? serve_run(&serve) : status);
}
