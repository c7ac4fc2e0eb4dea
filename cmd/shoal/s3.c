/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c: `shoal s3`: buckets and objects by the command line. Finds the operation and its words. */
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/status.h"
#include "s3.h"

int cmd_s3(int argc, char **argv);

enum {
    S3_DIR,
    S3_ENDPOINT,
    S3_PROFILE,
    S3_REGION,
    S3_VIRTUAL,
    S3_RECURSIVE,
    S3_EXCLUDE,
    S3_INCLUDE,
    S3_DELETE,
    S3_SIZES,
    S3_FORCE,
    S3_HUMAN,
    S3_NO_LINKS,
    S3_DRY,
    S3_QUIET,
    S3_JSON,
    S3_PARALLEL,
    S3_PART,
    S3_HELP
};

static const struct argument table[] = {
    [S3_DIR] = {"dir", 'd', "DIR",
                "the service of this directory (default: where\n"
                "AWS_ENDPOINT_URL says, else ~/.local/share/shoal)"},
    [S3_ENDPOINT] = {"endpoint", 'e', "URL", "another S3 service, https://HOST"},
    [S3_PROFILE] = {"profile", 0, "NAME", "keys and settings of that profile in ~/.aws"},
    [S3_REGION] = {"region", 0, "NAME", "the region that requests are signed for"},
    [S3_VIRTUAL] = {"virtual-host", 0, NULL, "name buckets in the host, as AWS wants it"},
    [S3_RECURSIVE] = {"recursive", 'r', NULL, "ls, cp, rm: everything below"},
    [S3_EXCLUDE] = {"exclude", 0, "PATTERN", "leave out paths that fit; * fits '/' too"},
    [S3_INCLUDE] = {"include", 0, "PATTERN", "take them again; the last one that fits decides"},
    [S3_DELETE] = {"delete", 0, NULL, "sync: delete what the source does not have"},
    [S3_SIZES] = {"size-only", 0, NULL, "sync: compare sizes, not times"},
    [S3_FORCE] = {"force", 0, NULL, "rb: delete what is in the bucket first"},
    [S3_HUMAN] = {"human-readable", 0, NULL, "ls: sizes with units"},
    [S3_NO_LINKS] = {"no-follow-symlinks", 0, NULL, "cp, sync: pass over links of a folder"},
    [S3_DRY] = {"dryrun", 0, NULL, "only say what would be done"},
    [S3_QUIET] = {"quiet", 'q', NULL, "print errors only"},
    [S3_JSON] = {"json", 0, NULL, "as one JSON document"},
    [S3_PARALLEL] = {"parallel", 'p', "N", "requests at one time (default 8)"},
    [S3_PART] = {"part-size", 0, "BYTES", "large objects move in such parts (default 16M)"},
    [S3_HELP] = {"help", 'h', NULL, "show this text"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

static const struct {
    const char *name;
    enum shoal_status (*run)(struct s3_session *session);
    int least, most; /* words */
    bool moves;      /* files, which are counted and shown */
    const char *usage, *help;
} operations[] = {
    {"ls", s3_ls, 0, 1, false, "ls [s3://BUCKET[/PREFIX]]", "buckets, or what is in one"},
    {"cp", s3_cp, 2, 2, true, "cp FROM TO", "copy; one side may be a path, or - for a pipe"},
    {"sync", s3_sync, 2, 2, true, "sync FROM TO", "copy what differs, of folders and prefixes"},
    {"rm", s3_rm, 1, 1, true, "rm s3://BUCKET/KEY", "delete an object"},
    {"mb", s3_mb, 1, 1, false, "mb s3://BUCKET", "make a bucket"},
    {"rb", s3_rb, 1, 1, false, "rb s3://BUCKET", "remove an empty bucket"},
};
#define OPERATION_COUNT (sizeof(operations) / sizeof(operations[0]))

atomic_bool s3_is_cancelled;

/* ---- the command line -------------------------------------------------------------------------
 */

static enum shoal_status filter_add(struct s3_wish *wish, const char *pattern, bool includes)
{
    if (wish->filter_count == S3_FILTERS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "more than %d patterns", S3_FILTERS_MAX);
    wish->filters[wish->filter_count++] = (struct s3_filter){pattern, includes};
    return SHOAL_OK;
}

static enum shoal_status part_take(struct s3_wish *wish, const char *value)
{
    uint64_t bytes;
    TRY(argument_bytes("--part-size", value, &bytes));
    if (bytes < (uint64_t)S3_PART_BYTES_MIN || bytes > (uint64_t)S3_PART_BYTES_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "--part-size %s: it takes 5M to 5G", value);
    wish->part_bytes = (int64_t)bytes;
    return SHOAL_OK;
}

static enum shoal_status take(void *user, int id, const char *value)
{
    struct s3_wish *wish = user;
    switch (id) {
    case S3_DIR: wish->endpoint.dir = value; break;
    case S3_ENDPOINT: wish->endpoint.url = value; break;
    case S3_PROFILE: wish->endpoint.profile = value; break;
    case S3_REGION: wish->endpoint.region = value; break;
    case S3_VIRTUAL: wish->style = S3_STYLE_VIRTUAL; break;
    case S3_RECURSIVE: wish->is_recursive = true; break;
    case S3_EXCLUDE: return filter_add(wish, value, false);
    case S3_INCLUDE: return filter_add(wish, value, true);
    case S3_DELETE: wish->deletes = true; break;
    case S3_SIZES: wish->sizes_only = true; break;
    case S3_FORCE: wish->is_forced = true; break;
    case S3_HUMAN: wish->is_human = true; break;
    case S3_NO_LINKS: wish->passes_links = true; break;
    case S3_DRY: wish->is_dry = true; break;
    case S3_QUIET: wish->is_quiet = true; break;
    case S3_JSON: wish->wants_json = true; break;
    case S3_PARALLEL: return argument_number("--parallel", value, 1, 64, &wish->parallel);
    case S3_PART: return part_take(wish, value);
    default: break;
    }
    return SHOAL_OK;
}

static void help_print(FILE *out)
{
    fprintf(out, "usage: shoal s3 OPERATION [WORD...] [OPTION...]\n\n"
                 "Buckets and objects of the job service, or of another S3 service.\n\n");
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        fprintf(out, "  %-26s  %s\n", operations[i].usage, operations[i].help);
    fprintf(out, "\n");
    arguments_help(table, TABLE_COUNT, out);
    fprintf(out, "\nexamples:\n"
                 "  shoal s3 mb s3://data\n"
                 "  shoal s3 cp digits.csv s3://data/train/\n"
                 "  shoal s3 ls s3://data/train/\n"
                 "  shoal s3 sync photos s3://data/photos --delete --exclude '*.tmp'\n"
                 "  tar c results | shoal s3 cp - s3://data/results.tar\n"
                 "  shoal s3 rm s3://data/photos --recursive\n"
                 "  shoal s3 rb s3://data --force\n\n"
                 "Exit status: 0; 1 if anything failed, or ls found nothing; 2 for wrong "
                 "arguments.\n");
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static int operation_find(const char *word)
{
    const char *names[OPERATION_COUNT];
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (strcmp(operations[i].name, word) == 0)
            return (int)i;
        names[i] = operations[i].name;
    }
    const char *nearest = base_nearest(word, names, OPERATION_COUNT);
    base_error(SHOAL_ERR_ARGUMENT, "there is no operation '%s'%s%s (see shoal help s3)", word,
               nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "");
    return -1;
}

/* Words stand before, between or behind the options. */
static enum shoal_status words_take(struct arguments *arguments, struct s3_wish *wish, int most)
{
    for (;;) {
        TRY(arguments_take(arguments));
        if (arguments->at >= arguments->argc)
            return SHOAL_OK;
        if (wish->word_count == most)
            return base_error(SHOAL_ERR_ARGUMENT, "'%s' is one word too many (see shoal help s3)",
                              arguments->argv[arguments->at]);
        wish->words[wish->word_count++] = arguments->argv[arguments->at++];
    }
}

/* ---- what operations ask ------------------------------------------------------------------------
 */

enum shoal_status s3_side_of(const char *word, struct s3_side *out)
{
    *out = (struct s3_side){.path = word};
    out->is_stream = strcmp(word, "-") == 0;
    out->is_remote = strncmp(word, "s3://", 5) == 0;
    if (!out->is_remote)
        return SHOAL_OK;
    size_t bytes = strcspn(word + 5, "/");
    if (bytes == 0 || bytes >= sizeof(out->bucket))
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not of the form s3://BUCKET/KEY", word);
    memcpy(out->bucket, word + 5, bytes);
    out->path = word + 5 + bytes;
    out->path += *out->path == '/';
    return SHOAL_OK;
}

bool s3_wish_takes(const struct s3_wish *wish, const char *path)
{
    bool takes = true;
    for (int i = 0; i < wish->filter_count; i++)
        if (fnmatch(wish->filters[i].pattern, path, 0) == 0)
            takes = wish->filters[i].includes;
    return takes;
}

/* ---- the session --------------------------------------------------------------------------------
 */

/* A second one ends the process at once. */
static void on_end(int signal_number)
{
    (void)signal_number;
    atomic_store(&s3_is_cancelled, true);
}

static void signals_take(void)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum shoal_status session_open(struct s3_session *session, struct http_endpoint *endpoint,
                                      bool moves)
{
    const struct s3_wish *wish = session->wish;
    TRY(http_endpoint_find(&wish->endpoint, endpoint));
    if (moves)
        TRY(s3_progress_create(wish, &session->progress));
    struct s3_client_options options = {.endpoint = endpoint,
                                        .style = wish->style,
                                        .parallel = (int)wish->parallel,
                                        .part_bytes = wish->part_bytes,
                                        .is_cancelled = &s3_is_cancelled,
                                        .user = session->progress};
    options.progress = moves ? s3_progress_bytes : NULL;
    if (s3_client_create(&options, &session->client) != S3_OK)
        return SHOAL_ERR_MEMORY;
    return SHOAL_OK;
}

static enum shoal_status session_run(const struct s3_wish *wish, int operation)
{
    struct http_endpoint endpoint;
    struct s3_session session = {.wish = wish};
    signals_take();
    enum shoal_status status = session_open(&session, &endpoint, operations[operation].moves);
    if (status == SHOAL_OK)
        status = operations[operation].run(&session);
    s3_client_free(session.client);
    if (session.progress != NULL) {
        int64_t failed = s3_progress_end(session.progress);
        if (status == SHOAL_OK && failed > 0)
            status = base_error(SHOAL_ERR_PEER_REFUSED, "%lld %s not done", (long long)failed,
                                failed == 1 ? "file was" : "files were");
    }
    if (status == SHOAL_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = base_error(SHOAL_ERR_SYSTEM, "cannot write to stdout");
    return status;
}

static enum shoal_status s3_run(int argc, char **argv)
{
    struct s3_wish wish = {.endpoint.service = "s3"};
    struct arguments arguments = {.command = "s3",
                                  .table = table,
                                  .count = TABLE_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = take,
                                  .user = &wish,
                                  .at = 2};
    int operation = operation_find(argv[1]);
    if (operation < 0)
        return SHOAL_ERR_ARGUMENT;
    TRY(words_take(&arguments, &wish, operations[operation].most));
    if (wish.word_count < operations[operation].least)
        return base_error(SHOAL_ERR_ARGUMENT, "usage: shoal s3 %s", operations[operation].usage);
    if (wish.wants_json && wish.word_count == 2 && strcmp(wish.words[1], "-") == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "--json would stand among the bytes on stdout");
    return session_run(&wish, operation);
}

int cmd_s3(int argc, char **argv)
{
    if (argc < 2) {
        help_print(stderr);
        return EXIT_USAGE;
    }
    for (int i = 1; i < argc; i++)
        if (is_help(argv[i]) && (i == 1 || argv[i][0] == '-')) {
            help_print(stdout);
            return 0;
        }
    enum shoal_status status = s3_run(argc, argv);
    return status == SHOAL_ERR_STATE && base_error_text()[0] == '\0'
               ? 1 /* ls found nothing, which needs no words */
               : arguments_exit("s3", status);
}
