/* SPDX-License-Identifier: Apache-2.0 */
/*
 * platform.c: reads and writes platform files. A statement is a keyword and its words; the table
 * below has one row for each. A keyword stands once, but for `link HOST`: a second time is a
 * mistake more often than a wish.
 */
#include "sim/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"

#define LINE_BYTES     512
#define WORDS_MAX      8
#define FILE_BYTES_MAX (UINT64_C(4) << 20)
#define BLANKS         " \t\r\n"

/* ---- values -------------------------------------------------------------------------------- */

struct unit {
    const char *name;
    double factor;
};

/* A number with one of the units, `least` or more. */
static enum shoal_status parse_scaled(const char *what, const char *text, const struct unit *units,
                                      double least, double *out)
{
    char *end = NULL;
    double number = strtod(text, &end);
    for (const struct unit *unit = units; end != text && unit->name; unit++)
        if (strcmp(end, unit->name) == 0 && number >= least && number < 1e15) {
            *out = number * unit->factor;
            return SHOAL_OK;
        }
    char names[64] = "";
    for (size_t i = 0, used = 0; units[i].name && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 units[i].name);
    return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number %s0 with %s", what, text,
                      least > 0 ? "above " : "of at least ", names);
}

enum shoal_status sim_parse_rate(const char *what, const char *text, double *bytes_per_ns)
{
    static const struct unit units[] = {
        {"kbit", 1e3 / 8e9}, {"mbit", 1e6 / 8e9}, {"gbit", 1e9 / 8e9}, {"tbit", 1e12 / 8e9},
        {"MB/s", 1e-3},      {"GB/s", 1},         {"TB/s", 1e3},       {0}};
    return parse_scaled(what, text, units, 1e-12, bytes_per_ns);
}

enum shoal_status sim_parse_time(const char *what, const char *text, double *ns)
{
    static const struct unit units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {0}};
    return parse_scaled(what, text, units, 0, ns);
}

/* ---- statements ---------------------------------------------------------------------------- */

enum keyword {
    KEY_HOSTS,
    KEY_RANKS,
    KEY_SERVERS,
    KEY_ACCELERATORS,
    KEY_LINK,
    KEY_BUCKET,
    KEY_SWITCH,
    KEY_CORES,
    KEY_SEND,
    KEY_RECEIVE,
    KEY_LOCAL,
    KEY_COPY,
    KEY_REDUCE,
    KEY_EAGER,
    KEY_COUNT
};

static const struct {
    const char *name, *form;
} keywords[KEY_COUNT] = {
    [KEY_HOSTS] = {"hosts", "hosts NUMBER"},
    [KEY_RANKS] = {"ranks", "ranks NUMBER"},
    [KEY_SERVERS] = {"servers", "servers NUMBER"},
    [KEY_ACCELERATORS] = {"accelerators", "accelerators NUMBER rate RATE"},
    [KEY_LINK] = {"link", "link rate RATE latency TIME, or link HOST rate RATE"},
    [KEY_BUCKET] = {"bucket", "bucket BYTES"},
    [KEY_SWITCH] = {"switch", "switch HOSTS rate RATE latency TIME"},
    [KEY_CORES] = {"cores", "cores NUMBER, or cores NUMBER shared"},
    [KEY_SEND] = {"send", "send TIME TIME (per message, per byte)"},
    [KEY_RECEIVE] = {"receive", "receive TIME TIME (per message, per byte)"},
    [KEY_LOCAL] = {"local", "local TIME"},
    [KEY_COPY] = {"copy", "copy RATE"},
    [KEY_REDUCE] = {"reduce", "reduce RATE"},
    [KEY_EAGER] = {"eager", "eager BYTES"},
};

struct reader {
    struct sim_platform *platform;
    int line;
    char *words[WORDS_MAX];
    int word_count;
    int seen[KEY_COUNT]; /* line of each keyword; 0: not yet */
};

static enum shoal_status parse_number(const char *what, const char *text, long minimum,
                                      long maximum, int *out)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < minimum || number > maximum)
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number from %ld to %ld", what,
                          text, minimum, maximum);
    *out = (int)number;
    return SHOAL_OK;
}

static enum shoal_status wrong_form(enum keyword key)
{
    return base_error(SHOAL_ERR_FORMAT, "expected: %s", keywords[key].form);
}

/* Pairs of name and value from word `at` on: rate RATE, latency TIME. Those with no place to go to
 * are not allowed; all others must stand there. */
static enum shoal_status read_properties(const struct reader *reader, enum keyword key, int at,
                                         double *rate, double *latency_ns)
{
    bool has_rate = false, has_latency = false;
    for (; at + 1 < reader->word_count; at += 2) {
        const char *name = reader->words[at], *value = reader->words[at + 1];
        if (rate && strcmp(name, "rate") == 0) {
            TRY(sim_parse_rate(name, value, rate));
            has_rate = true;
        } else if (latency_ns && strcmp(name, "latency") == 0) {
            TRY(sim_parse_time(name, value, latency_ns));
            has_latency = true;
        } else {
            return wrong_form(key);
        }
    }
    if (at != reader->word_count || (rate && !has_rate) || (latency_ns && !has_latency))
        return wrong_form(key);
    return SHOAL_OK;
}

/* link HOST rate RATE */
static enum shoal_status read_own_link(struct reader *reader)
{
    struct sim_platform *platform = reader->platform;
    int host;
    double rate;
    TRY(parse_number("link", reader->words[1], 0, SIM_HOSTS_MAX - 1, &host));
    TRY(read_properties(reader, KEY_LINK, 2, &rate, NULL));
    if (platform->own_bytes_per_ns[host] > 0)
        return base_error(SHOAL_ERR_FORMAT, "the link of host %d has a rate already", host);
    platform->own_bytes_per_ns[host] = rate;
    if (host > platform->own_host_last) {
        platform->own_host_last = host;
        platform->own_line = reader->line;
    }
    return SHOAL_OK;
}

static enum shoal_status read_cost(const struct reader *reader, enum keyword key,
                                   struct sim_cost *cost)
{
    if (reader->word_count != 3)
        return wrong_form(key);
    TRY(sim_parse_time(keywords[key].name, reader->words[1], &cost->message_ns));
    return sim_parse_time(keywords[key].name, reader->words[2], &cost->byte_ns);
}

static enum shoal_status read_cores(const struct reader *reader)
{
    struct sim_platform *platform = reader->platform;
    platform->cores_are_shared = reader->word_count == 3 && strcmp(reader->words[2], "shared") == 0;
    if (reader->word_count != 2 + platform->cores_are_shared)
        return wrong_form(KEY_CORES);
    return parse_number("cores", reader->words[1], 1, 64, &platform->cores);
}

static enum shoal_status read_switch(const struct reader *reader)
{
    struct sim_platform *platform = reader->platform;
    if (reader->word_count < 2)
        return wrong_form(KEY_SWITCH);
    TRY(parse_number("switch", reader->words[1], 1, SIM_HOSTS_MAX, &platform->switch_hosts));
    return read_properties(reader, KEY_SWITCH, 2, &platform->uplink_bytes_per_ns,
                           &platform->uplink_latency_ns);
}

static enum shoal_status read_accelerators(const struct reader *reader)
{
    struct sim_platform *platform = reader->platform;
    if (reader->word_count < 2)
        return wrong_form(KEY_ACCELERATORS);
    TRY(parse_number("accelerators", reader->words[1], 1, 64, &platform->accelerators));
    return read_properties(reader, KEY_ACCELERATORS, 2, &platform->accelerator_bytes_per_ns, NULL);
}

static enum shoal_status read_statement(struct reader *reader, enum keyword key)
{
    struct sim_platform *platform = reader->platform;
    if (key == KEY_SEND)
        return read_cost(reader, key, &platform->send);
    if (key == KEY_RECEIVE)
        return read_cost(reader, key, &platform->receive);
    if (key == KEY_CORES)
        return read_cores(reader);
    if (key == KEY_SWITCH)
        return read_switch(reader);
    if (key == KEY_ACCELERATORS)
        return read_accelerators(reader);
    if (key == KEY_LINK)
        return read_properties(reader, key, 1, &platform->link_bytes_per_ns,
                               &platform->link_latency_ns);
    if (reader->word_count != 2)
        return wrong_form(key);
    const char *name = reader->words[0], *value = reader->words[1];
    uint64_t *bytes = key == KEY_BUCKET ? &platform->bucket_bytes : &platform->eager_bytes;
    switch (key) {
    case KEY_HOSTS: return parse_number(name, value, 1, SIM_HOSTS_MAX, &platform->host_count);
    case KEY_RANKS: return parse_number(name, value, 1, 64, &platform->ranks_per_host);
    case KEY_SERVERS: return parse_number(name, value, 0, SIM_RANKS_MAX, &platform->server_count);
    case KEY_LOCAL: return sim_parse_time(name, value, &platform->local_latency_ns);
    case KEY_COPY: return sim_parse_rate(name, value, &platform->copy_bytes_per_ns);
    case KEY_REDUCE: return sim_parse_rate(name, value, &platform->reduce_bytes_per_ns);
    default: return base_parse_bytes(value, bytes);
    }
}

static enum shoal_status unknown_keyword(const char *word)
{
    const char *names[KEY_COUNT];
    char list[256] = "";
    for (size_t i = 0, used = 0; i < KEY_COUNT && used < sizeof(list); i++) {
        names[i] = keywords[i].name;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = base_nearest(word, names, KEY_COUNT);
    if (nearest)
        return base_error(SHOAL_ERR_FORMAT, "there is no '%s'; did you mean '%s'?", word, nearest);
    return base_error(SHOAL_ERR_FORMAT, "there is no '%s': expected %s", word, list);
}

static int find_keyword(const char *word)
{
    int key = 0;
    while (key < KEY_COUNT && strcmp(keywords[key].name, word) != 0)
        key++;
    return key;
}

bool sim_platform_has_keyword(const char *word)
{
    return find_keyword(word) < KEY_COUNT;
}

static enum shoal_status read_words(struct reader *reader)
{
    int key = find_keyword(reader->words[0]);
    if (key == KEY_COUNT)
        return unknown_keyword(reader->words[0]);
    const char *second = reader->word_count > 1 ? reader->words[1] : "";
    if (key == KEY_LINK && second[0] >= '0' && second[0] <= '9')
        return read_own_link(reader);
    if (reader->seen[key])
        return base_error(SHOAL_ERR_FORMAT, "'%s' stands already in line %d", keywords[key].name,
                          reader->seen[key]);
    reader->seen[key] = reader->line;
    return read_statement(reader, (enum keyword)key);
}

static enum shoal_status read_line(struct reader *reader, char *line)
{
    line[strcspn(line, "#")] = '\0';
    reader->word_count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, BLANKS, &rest); word; word = strtok_r(NULL, BLANKS, &rest)) {
        if (reader->word_count == WORDS_MAX)
            return base_error(SHOAL_ERR_FORMAT, "more than %d words", WORDS_MAX);
        reader->words[reader->word_count++] = word;
    }
    return reader->word_count ? read_words(reader) : SHOAL_OK;
}

static enum shoal_status read_text(struct reader *reader, const char *path, const char *text)
{
    while (*text) {
        char line[LINE_BYTES];
        size_t bytes = strcspn(text, "\n");
        reader->line++;
        if (bytes >= sizeof(line))
            return base_error(SHOAL_ERR_FORMAT, "%s:%d: longer than %d characters", path,
                              reader->line, LINE_BYTES - 1);
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        enum shoal_status status = read_line(reader, line);
        if (status != SHOAL_OK && status != SHOAL_ERR_MEMORY)
            return base_error_context(SHOAL_ERR_FORMAT, "%s:%d", path, reader->line);
        TRY(status);
        text += bytes + (text[bytes] == '\n');
    }
    return SHOAL_OK;
}

/* ---- platforms ----------------------------------------------------------------------------- */

static enum shoal_status check_size(const struct sim_platform *platform)
{
    if (platform->own_host_last >= sim_all_hosts(platform))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the link of host %d has a rate of its own, but hosts are 0 to %d",
                          platform->own_host_last, sim_all_hosts(platform) - 1);
    if (platform->host_count * platform->ranks_per_host + platform->server_count > SIM_RANKS_MAX)
        return base_error(
            SHOAL_ERR_ARGUMENT, "%d hosts of %d ranks and %d servers: at most %d together",
            platform->host_count, platform->ranks_per_host, platform->server_count, SIM_RANKS_MAX);
    return SHOAL_OK;
}

enum shoal_status sim_platform_create(int host_count, struct sim_platform **out)
{
    struct sim_platform *platform;
    TRY(BASE_NEW(&platform, "a platform"));
    *platform = (struct sim_platform){.host_count = host_count,
                                      .ranks_per_host = 1,
                                      .accelerators = 1,
                                      .accelerator_bytes_per_ns = 100,
                                      .link_bytes_per_ns = 10.0 / 8,
                                      .link_latency_ns = 50e3,
                                      .own_host_last = -1,
                                      .send = {2e3, 0.1},
                                      .receive = {2e3, 0.15},
                                      .local_latency_ns = 500,
                                      .copy_bytes_per_ns = 8,
                                      .reduce_bytes_per_ns = 12,
                                      .eager_bytes = 16384};
    enum shoal_status status =
        BASE_NEW_ARRAY(&platform->own_bytes_per_ns, SIM_HOSTS_MAX, "a platform");
    if (status != SHOAL_OK) {
        base_free(platform);
        return status;
    }
    *out = platform;
    return SHOAL_OK;
}

void sim_platform_free(struct sim_platform *platform)
{
    if (platform)
        base_free(platform->own_bytes_per_ns);
    base_free(platform);
}

/* Of the numbers that don't go together, where one of them stands. */
static int line_of_size(const struct reader *reader)
{
    static const enum keyword keys[] = {KEY_SERVERS, KEY_RANKS, KEY_HOSTS};
    if (reader->platform->own_host_last >= sim_all_hosts(reader->platform))
        return reader->platform->own_line;
    size_t i = 0;
    while (i < 2 && reader->seen[keys[i]] == 0)
        i++;
    return reader->seen[keys[i]];
}

enum shoal_status sim_platform_parse(const char *path, const char *text, struct sim_platform **out)
{
    struct reader reader = {0};
    TRY(sim_platform_create(2, &reader.platform));
    enum shoal_status status = read_text(&reader, path, text);
    if (status == SHOAL_OK && check_size(reader.platform) != SHOAL_OK) {
        status = base_error_context(SHOAL_ERR_FORMAT, "%s:%d", path, line_of_size(&reader));
    }
    if (status == SHOAL_OK)
        *out = reader.platform;
    else
        sim_platform_free(reader.platform);
    return status;
}

enum shoal_status sim_platform_read(const char *path, struct sim_platform **out)
{
    char *text = NULL;
    FILE *file = fopen(path, "r");
    if (!file)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read the platform %s", path);
    enum shoal_status status = BASE_NEW_ARRAY(&text, FILE_BYTES_MAX + 1, "a platform file");
    size_t bytes = status == SHOAL_OK ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (status == SHOAL_OK && ferror(file))
        status = base_error(SHOAL_ERR_SYSTEM, "cannot read the platform %s", path);
    if (status == SHOAL_OK && (bytes > FILE_BYTES_MAX || memchr(text, '\0', bytes)))
        status = base_error(SHOAL_ERR_FORMAT, "%s:1: this is no platform file", path);
    if (status == SHOAL_OK)
        text[bytes] = '\0';
    if (status == SHOAL_OK)
        status = sim_platform_parse(path, text, out);
    base_free(text);
    fclose(file);
    return status;
}

enum shoal_status sim_platform_resize(struct sim_platform *platform, int host_count,
                                      int server_count)
{
    struct sim_platform other = *platform;
    other.host_count = host_count;
    other.server_count = server_count;
    TRY(check_size(&other));
    platform->host_count = host_count;
    platform->server_count = server_count;
    return SHOAL_OK;
}

void sim_platform_print(const struct sim_platform *platform, FILE *out)
{
    fprintf(out, "hosts %d\nranks %d\n", platform->host_count, platform->ranks_per_host);
    if (platform->server_count)
        fprintf(out, "servers %d\n", platform->server_count);
    if (platform->accelerators > 1)
        fprintf(out, "accelerators %d rate %.6gGB/s\n", platform->accelerators,
                platform->accelerator_bytes_per_ns);
    fprintf(out, "link rate %.6ggbit latency %.6gus\n", platform->link_bytes_per_ns * 8,
            platform->link_latency_ns / 1e3);
    if (platform->bucket_bytes)
        fprintf(out, "bucket %llu\n", (unsigned long long)platform->bucket_bytes);
    for (int host = 0; host <= platform->own_host_last; host++)
        if (platform->own_bytes_per_ns[host] > 0)
            fprintf(out, "link %d rate %.6ggbit\n", host, platform->own_bytes_per_ns[host] * 8);
    if (platform->switch_hosts)
        fprintf(out, "switch %d rate %.6ggbit latency %.6gus\n", platform->switch_hosts,
                platform->uplink_bytes_per_ns * 8, platform->uplink_latency_ns / 1e3);
    if (platform->cores)
        fprintf(out, "cores %d%s\n", platform->cores, platform->cores_are_shared ? " shared" : "");
    fprintf(out, "send %.6gus %.6gns\nreceive %.6gus %.6gns\n", platform->send.message_ns / 1e3,
            platform->send.byte_ns, platform->receive.message_ns / 1e3, platform->receive.byte_ns);
    fprintf(out, "local %.6gns\ncopy %.6gGB/s\nreduce %.6gGB/s\neager %llu\n",
            platform->local_latency_ns, platform->copy_bytes_per_ns, platform->reduce_bytes_per_ns,
            (unsigned long long)platform->eager_bytes);
}
