/* SPDX-License-Identifier: Apache-2.0 */
/* bench_launch.c: see bench_launch.h. */
#include "bench_launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "launch/process.h"
#include "virtual_hosts.h"

#define WORDS_MAX 96

enum shoal_status bench_launch_use(struct bench_launch *launch, int which, const char *value)
{
    struct vhosts_rates rates;
    launch->values[which] = value;
    return which == BENCH_LAUNCH_RATE ? vhosts_parse_rates(value, &rates) : SHOAL_OK;
}

enum shoal_status bench_launch_check(const struct bench_launch *launch)
{
    const char *const *values = launch->values;
    bool hosts = values[BENCH_LAUNCH_HOSTS] != NULL, agent = values[BENCH_LAUNCH_AGENT] != NULL;
    if (values[BENCH_LAUNCH_VIRTUAL_HOSTS] != NULL && (hosts || agent))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "--virtual-hosts makes its own hosts; leave --hosts and --agent out");
    if (values[BENCH_LAUNCH_RATE] != NULL && values[BENCH_LAUNCH_VIRTUAL_HOSTS] == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "--rate goes with --virtual-hosts");
    if (values[BENCH_LAUNCH_SERVERS] != NULL && !bench_launch_wanted(launch))
        return base_error(SHOAL_ERR_ARGUMENT, "--servers goes with --hosts or --virtual-hosts");
    if (agent && !hosts)
        return base_error(SHOAL_ERR_ARGUMENT, "--agent goes with --hosts");
    return SHOAL_OK;
}

bool bench_launch_wanted(const struct bench_launch *launch)
{
    return launch->values[BENCH_LAUNCH_RANKS] != NULL ||
           launch->values[BENCH_LAUNCH_HOSTS] != NULL ||
           launch->values[BENCH_LAUNCH_VIRTUAL_HOSTS] != NULL;
}

/* A command line under construction; words are borrowed. */
struct words {
    char *word[WORDS_MAX];
    int count;
    bool full;
};

static void words_add(struct words *words, const char *word)
{
    if (words->count == WORDS_MAX - 1)
        words->full = true;
    else
        words->word[words->count++] = (char *)word;
}

static void words_add_option(struct words *words, const char *name, const char *value)
{
    if (value == NULL)
        return;
    words_add(words, name);
    words_add(words, value);
}

/* "vh0:2,vh1:2": the ranks of `ranks_text` (NULL: one each) dealt out in blocks. */
static enum shoal_status virtual_host_list(const char *count_text, const char *ranks_text,
                                           char *out, size_t capacity)
{
    long hosts = 0, ranks = 0;
    size_t used = 0;
    TRY(argument_number("--virtual-hosts", count_text, 1, VHOSTS_MAX, &hosts));
    ranks = hosts;
    if (ranks_text != NULL)
        TRY(argument_number("-n", ranks_text, hosts, 100000, &ranks));
    for (long i = 0; i < hosts; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%svh%ld:%ld", i > 0 ? "," : "", i,
                                 ranks / hosts + (i < ranks % hosts));
    return SHOAL_OK;
}

/* The virtual hosts behind those of ranks: how many hosts there are then, and the servers' list. */
static enum shoal_status virtual_server_list(const char *count_text, const char *servers_text,
                                             char total[16], char *out, size_t capacity)
{
    long hosts = 0, servers = 0;
    size_t used = 0;
    TRY(argument_number("--virtual-hosts", count_text, 1, VHOSTS_MAX, &hosts));
    if (servers_text != NULL)
        TRY(argument_number("--servers", servers_text, 1, VHOSTS_MAX - hosts, &servers));
    for (long i = 0; i < servers; i++)
        used +=
            (size_t)snprintf(out + used, capacity - used, "%svh%ld", i > 0 ? "," : "", hosts + i);
    snprintf(total, 16, "%ld", hosts + servers);
    return SHOAL_OK;
}

/* Adds this command's own arguments but those that start ranks. */
static void words_add_measurement(struct words *words, int argc, char **argv)
{
    static const char *const starting[] = {"-n",      "--ranks",         "-H",     "--hosts",
                                           "--agent", "--virtual-hosts", "--rate", "--servers"};
    for (int i = 1; i < argc; i++) {
        bool skipped = false, joined = false;
        for (size_t j = 0; j < sizeof(starting) / sizeof(starting[0]); j++) {
            size_t length = strlen(starting[j]);
            bool exact = strcmp(argv[i], starting[j]) == 0;
            bool with_value = strncmp(argv[i], starting[j], length) == 0 &&
                              (argv[i][length] == '=' || (length == 2 && argv[i][length] != '\0'));
            skipped = skipped || exact || with_value;
            joined = joined || with_value;
        }
        if (!skipped)
            words_add(words, argv[i]);
        else if (!joined)
            i++;
    }
}

enum shoal_status bench_launch_become(const struct bench_launch *launch, const char *benchmark,
                                      int argc, char **argv)
{
    struct words words = {.count = 0};
    const char *const *values = launch->values;
    const char *virtual_hosts = values[BENCH_LAUNCH_VIRTUAL_HOSTS];
    const char *servers = values[BENCH_LAUNCH_SERVERS];
    char self[LAUNCH_PATH_BYTES], hosts[VHOSTS_MAX * 16], agent[LAUNCH_PATH_BYTES + 104];
    char server_hosts[VHOSTS_MAX * 16], total[16];
    TRY(launch_own_path(self));
    snprintf(agent, sizeof(agent), "'%s' vhosts-exec {host} --", self);
    if (virtual_hosts != NULL) {
        TRY(virtual_host_list(virtual_hosts, values[BENCH_LAUNCH_RANKS], hosts, sizeof(hosts)));
        TRY(virtual_server_list(virtual_hosts, servers, total, server_hosts, sizeof(server_hosts)));
        words_add(&words, self);
        words_add(&words, "vhosts");
        words_add_option(&words, "-n", total);
        words_add_option(&words, "--rate", values[BENCH_LAUNCH_RATE]);
        words_add(&words, "--");
    }
    words_add(&words, self);
    words_add(&words, "run");
    words_add(&words, "--no-tag");
    words_add_option(&words, "-n", values[BENCH_LAUNCH_RANKS]);
    words_add_option(&words, "--hosts", virtual_hosts ? hosts : values[BENCH_LAUNCH_HOSTS]);
    words_add_option(&words, "--servers", servers);
    words_add_option(&words, "--server-hosts", virtual_hosts && servers ? server_hosts : NULL);
    words_add_option(&words, "--agent", virtual_hosts ? agent : values[BENCH_LAUNCH_AGENT]);
    words_add(&words, "--");
    words_add(&words, self);
    words_add(&words, "bench");
    if (benchmark != NULL)
        words_add(&words, benchmark);
    words_add_measurement(&words, argc, argv);
    if (words.full)
        return base_error(SHOAL_ERR_LIMIT, "more than %d words", WORDS_MAX);
    execv(self, words.word);
    return base_error_errno(SHOAL_ERR_SYSTEM, errno, "executing %s", self);
}
