/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.c: reads lists of hosts. An entry is "name", "name:slots" or "[address]:slots", and in a
 * file also "name slots=N". A host stands once in a list: a second time is more often a mistake
 * than a wish for more slots.
 */
#include "launch/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/status.h"

#define LINE_BYTES  1024
#define BLANKS      " \t\r\n"
#define SLOTS_LIMIT LAUNCH_RANKS_MAX

static enum shoal_status slots_parse(const char *text, int *slots)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0')
        return base_error(SHOAL_ERR_OPTION, "'%s' is not a number of slots", text);
    if (number < 1 || number > SLOTS_LIMIT || errno != 0)
        return base_error(SHOAL_ERR_OPTION, "%s slots; a host has 1 to %d", text, SLOTS_LIMIT);
    *slots = (int)number;
    return SHOAL_OK;
}

static enum shoal_status name_set(struct launch_host *host, const char *name, size_t length)
{
    if (length == 0)
        return base_error(SHOAL_ERR_OPTION, "a host name is missing");
    if (length >= sizeof(host->name))
        return base_error(SHOAL_ERR_OPTION, "a host name has %zu characters; at most %zu", length,
                          sizeof(host->name) - 1);
    memcpy(host->name, name, length);
    host->name[length] = '\0';
    if (name[0] == '-')
        return base_error(SHOAL_ERR_OPTION, "'%s' is not a host name", host->name);
    return SHOAL_OK;
}

/* "[address]" or "[address]:slots". */
static enum shoal_status bracketed_parse(const char *word, struct launch_host *host)
{
    const char *close = strchr(word, ']');
    if (close == NULL)
        return base_error(SHOAL_ERR_OPTION, "'%s' has no closing bracket", word);
    TRY(name_set(host, word + 1, (size_t)(close - word - 1)));
    if (close[1] == '\0')
        return SHOAL_OK;
    if (close[1] != ':')
        return base_error(SHOAL_ERR_OPTION, "'%s': after the bracket comes :SLOTS", word);
    return slots_parse(close + 2, &host->slots);
}

/* One word, without blanks. */
static enum shoal_status host_parse(const char *word, struct launch_host *host)
{
    *host = (struct launch_host){.slots = 1};
    if (word[0] == '[')
        return bracketed_parse(word, host);
    const char *colon = strchr(word, ':');
    if (colon != NULL && strchr(colon + 1, ':') != NULL)
        return base_error(SHOAL_ERR_OPTION,
                          "'%s' has several colons; write an IPv6 address in brackets: [%s]", word,
                          word);
    size_t length = colon != NULL ? (size_t)(colon - word) : strlen(word);
    TRY(name_set(host, word, length));
    return colon != NULL ? slots_parse(colon + 1, &host->slots) : SHOAL_OK;
}

static enum shoal_status host_add(struct launch_hosts *hosts, const struct launch_host *host)
{
    for (int i = 0; i < hosts->count; i++) {
        if (strcasecmp(hosts->hosts[i].name, host->name) != 0)
            continue;
        if (host->line > 0)
            return base_error(SHOAL_ERR_OPTION, "host '%s' stands already in line %d", host->name,
                              hosts->hosts[i].line);
        return base_error(SHOAL_ERR_OPTION, "host '%s' stands there twice; write %s:SLOTS once",
                          host->name, host->name);
    }
    if (hosts->count == LAUNCH_HOSTS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "more than %d hosts", LAUNCH_HOSTS_MAX);
    hosts->hosts[hosts->count++] = *host;
    return SHOAL_OK;
}

static enum shoal_status hosts_new(struct launch_hosts *out)
{
    *out = (struct launch_hosts){0};
    return BASE_NEW_ARRAY(&out->hosts, LAUNCH_HOSTS_MAX, "the list of hosts");
}

static enum shoal_status list_parse(char *copy, struct launch_hosts *hosts)
{
    for (char *next = copy, *word; (word = strsep(&next, ",")) != NULL;) {
        struct launch_host host;
        word += strspn(word, BLANKS);
        word[strcspn(word, BLANKS)] = '\0';
        TRY(host_parse(word, &host));
        TRY(host_add(hosts, &host));
    }
    return SHOAL_OK;
}

enum shoal_status launch_hosts_parse(const char *list, struct launch_hosts *out)
{
    struct launch_hosts hosts;
    char *copy = NULL;
    TRY(base_strdup(list, "the list of hosts", &copy));
    enum shoal_status status = hosts_new(&hosts);
    if (status == SHOAL_OK)
        status = list_parse(copy, &hosts);
    base_free(copy);
    if (status != SHOAL_OK) {
        launch_hosts_release(&hosts);
        return base_error_context(status, "--hosts %s", list);
    }
    *out = hosts;
    return SHOAL_OK;
}

/* Words behind the host's name: slots=N; max_slots=N is read and has no meaning here. */
static enum shoal_status property_parse(const char *word, struct launch_host *host)
{
    int ignored = 0;
    if (strncmp(word, "slots=", 6) == 0)
        return slots_parse(word + 6, &host->slots);
    if (strncmp(word, "max_slots=", 10) == 0 || strncmp(word, "max-slots=", 10) == 0)
        return slots_parse(word + 10, &ignored);
    return base_error(SHOAL_ERR_FORMAT,
                      "'%s' is not understood; a line is HOST, HOST:SLOTS or "
                      "HOST slots=SLOTS",
                      word);
}

static enum shoal_status line_parse(char *line, int number, struct launch_hosts *hosts)
{
    line[strcspn(line, "#")] = '\0';
    char *rest = NULL;
    char *word = strtok_r(line, BLANKS, &rest);
    if (word == NULL)
        return SHOAL_OK;
    struct launch_host host;
    TRY(host_parse(word, &host));
    host.line = number;
    while ((word = strtok_r(NULL, BLANKS, &rest)) != NULL)
        TRY(property_parse(word, &host));
    return host_add(hosts, &host);
}

static enum shoal_status file_parse(FILE *file, const char *path, struct launch_hosts *hosts)
{
    char line[LINE_BYTES];
    for (int number = 1; fgets(line, sizeof(line), file) != NULL; number++) {
        enum shoal_status status;
        if (strchr(line, '\n') == NULL && !feof(file))
            status = base_error(SHOAL_ERR_FORMAT, "the line is longer than %d bytes", LINE_BYTES);
        else
            status = line_parse(line, number, hosts);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s:%d", path, number);
    }
    if (ferror(file))
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "hosts file %s", path);
    if (hosts->count == 0)
        return base_error(SHOAL_ERR_FORMAT, "hosts file %s names no host", path);
    return SHOAL_OK;
}

enum shoal_status launch_hosts_read(const char *path, struct launch_hosts *out)
{
    struct launch_hosts hosts;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "hosts file %s", path);
    enum shoal_status status = hosts_new(&hosts);
    if (status == SHOAL_OK)
        status = file_parse(file, path, &hosts);
    fclose(file);
    if (status != SHOAL_OK) {
        launch_hosts_release(&hosts);
        return status;
    }
    *out = hosts;
    return SHOAL_OK;
}

int launch_hosts_slots(const struct launch_hosts *hosts)
{
    int slots = 0;
    for (int i = 0; i < hosts->count; i++)
        slots += hosts->hosts[i].slots;
    return slots;
}

enum shoal_status launch_hosts_place(struct launch_hosts *hosts, int rank_count)
{
    int slots = launch_hosts_slots(hosts);
    if (rank_count > slots)
        return base_error(SHOAL_ERR_OPTION,
                          "%d ranks, but the %d host%s %d slot%s; give more slots (host:SLOTS) or "
                          "a smaller -n",
                          rank_count, hosts->count, hosts->count == 1 ? " has" : "s have", slots,
                          slots == 1 ? "" : "s");
    int placed = 0, used = 0;
    while (placed < rank_count) {
        struct launch_host *host = &hosts->hosts[used++];
        int left = rank_count - placed;
        host->first_rank = placed;
        host->rank_count = left < host->slots ? left : host->slots;
        placed += host->rank_count;
    }
    hosts->count = used;
    return SHOAL_OK;
}

static void spread_servers(struct launch_hosts *hosts, int server_count)
{
    for (int i = 0; i < hosts->count; i++) {
        struct launch_host *host = &hosts->hosts[i];
        host->first_server = server_count * i / hosts->count;
        host->server_count = server_count * (i + 1) / hosts->count - host->first_server;
    }
}

/* The entry of that name, at the end if there was none: the list has room for both lists. */
static struct launch_host *find_or_add(struct launch_hosts *hosts, const struct launch_host *host)
{
    for (int i = 0; i < hosts->count; i++)
        if (strcasecmp(hosts->hosts[i].name, host->name) == 0)
            return &hosts->hosts[i];
    hosts->hosts[hosts->count] = (struct launch_host){.slots = 0, .line = host->line};
    memcpy(hosts->hosts[hosts->count].name, host->name, sizeof(host->name));
    return &hosts->hosts[hosts->count++];
}

enum shoal_status launch_hosts_place_servers(struct launch_hosts *hosts,
                                             struct launch_hosts *server_hosts, int server_count)
{
    struct launch_host *both = NULL;
    if (server_hosts->count == 0) {
        spread_servers(hosts, server_count);
        return SHOAL_OK;
    }
    enum shoal_status status = launch_hosts_place(server_hosts, server_count);
    if (status != SHOAL_OK)
        return base_error_context(status, "--server-hosts, where servers count as ranks");
    TRY(BASE_NEW_ARRAY(&both, hosts->count + server_hosts->count, "the list of hosts"));
    memcpy(both, hosts->hosts, sizeof(*both) * (size_t)hosts->count);
    base_free(hosts->hosts);
    hosts->hosts = both;
    for (int i = 0; i < server_hosts->count; i++) {
        struct launch_host *host = find_or_add(hosts, &server_hosts->hosts[i]);
        host->first_server = server_hosts->hosts[i].first_rank;
        host->server_count = server_hosts->hosts[i].rank_count;
    }
    return SHOAL_OK;
}

void launch_hosts_release(struct launch_hosts *hosts)
{
    base_free(hosts->hosts);
    *hosts = (struct launch_hosts){0};
}
