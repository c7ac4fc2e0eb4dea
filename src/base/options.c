/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c: the table of options and its reading.
 *
 * All rows are read at once under a lock, at first use; after that values never change, so readers
 * take no lock. What was wrong is remembered, and base_options_load says it each time, on whatever
 * thread asks.
 */
#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/status.h"

#define TEXT_BYTES     512
#define NAME_BYTES_MAX 64
#define PREFIX         "SHOAL_"

#define KIB INT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)

static const struct base_option rows[OPTION_COUNT] = {
    [OPTION_TIMEOUT_MS] =
        {
            .name = "SHOAL_TIMEOUT_MS",
            .kind = BASE_OPTION_INT,
            .default_text = "300000",
            .minimum = 1,
            .maximum = INT32_MAX,
            .help = "longest time of one operation, in ms; raise it where ranks rightly wait long "
                    "for each other, such as for one that writes checkpoints",
        },
    [OPTION_REPRODUCIBLE] =
        {
            .name = "SHOAL_REPRODUCIBLE",
            .kind = BASE_OPTION_BOOL,
            .default_text = "0",
            .maximum = 1,
            .help = "1: sums have the same bits whatever the size, split and transport; set it to "
                    "compare runs bit by bit, at some cost in speed",
        },
    [OPTION_INTERFACE] =
        {
            .name = "SHOAL_INTERFACE",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .help = "network interface (eth1) or address prefix (10.0.) for links between hosts; "
                    "set it when the route to the peers is not the fast network; several with "
                    "commas (eth0,eth1) are used together",
        },
    [OPTION_STREAMS] =
        {
            .name = "SHOAL_STREAMS",
            .kind = BASE_OPTION_INT,
            .default_text = "0",
            .minimum = 1,
            .maximum = 8,
            .zero_too = true,
            .help = "connections to each peer on another host, over which large messages are cut; "
                    "0: one per interface, and more where these prove to carry more; set it to "
                    "keep to a number",
        },
    [OPTION_HOST_ID] =
        {
            .name = "SHOAL_HOST_ID",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .help = "believe that this process is on a host of that name: ranks that share memory "
                    "are those with equal names; set it apart where they cannot share",
        },
    [OPTION_LOG] =
        {
            .name = "SHOAL_LOG",
            .kind = BASE_OPTION_TEXT,
            .default_text = "warn",
            .choices = "error|warn|info|debug",
            .help = "lines on stderr up to this level; info shows what was chosen and why",
        },
    [OPTION_ISA] =
        {
            .name = "SHOAL_ISA",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .choices = "scalar|base|avx2|avx512|neon",
            .help = "form of the arithmetic loops; by itself the best that the processor has; all "
                    "forms give the same bits, so set it only to compare them",
        },
    [OPTION_ALGORITHM] =
        {
            .name = "SHOAL_ALGORITHM",
            .kind = BASE_OPTION_TEXT,
            .default_text = "auto",
            .help = "auto, a name (ring) or names per operation (allreduce:ring); set it on all "
                    "ranks alike, to compare algorithms or to work round one",
        },
    [OPTION_SEGMENT_BYTES] =
        {
            .name = "SHOAL_SEGMENT_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "0",
            .minimum = 4 * KIB,
            .maximum = GIB,
            .zero_too = true,
            .help = "piece in which algorithms between hosts pipeline; 0: by the table; smaller "
                    "overlaps more, larger costs fewer messages",
        },
    [OPTION_SHARES] =
        {
            .name = "SHOAL_SHARES",
            .kind = BASE_OPTION_TEXT,
            .default_text = "auto",
            .choices = "auto|equal",
            .help = "auto: where the links of hosts differ, ranks sum parts of large buffers that "
                    "follow the measured rates; equal: always equal parts; the bits are the same",
        },
    [OPTION_EAGER_BYTES] =
        {
            .name = "SHOAL_EAGER_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "16K",
            .maximum = MIB,
            .help = "messages up to this size are sent before the receiver asks; raise it on links "
                    "with long round trips, where memory for early messages is no concern",
        },
    [OPTION_RING_BYTES] =
        {
            .name = "SHOAL_RING_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "256K",
            .minimum = 4 * KIB,
            .maximum = 64 * MIB,
            .power_of_two = true,
            .help = "ring in shared memory for each pair of ranks on a host; lower it for many "
                    "ranks on little memory",
        },
    [OPTION_CHUNK_BYTES] =
        {
            .name = "SHOAL_CHUNK_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "0",
            .minimum = 4 * KIB,
            .maximum = GIB,
            .zero_too = true,
            .help = "piece in which collectives on one host pipeline; 0: by the table; change it "
                    "where caches are unusually small or large",
        },
    [OPTION_SHARED_BYTES] =
        {
            .name = "SHOAL_SHARED_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "0",
            .minimum = MIB,
            .maximum = 16 * TIB,
            .zero_too = true,
            .help = "address space of a rank's shared memory; 0: as much as RAM, at most 64G; only "
                    "what is used takes memory, so lower it only under a limit of address space",
        },
    [OPTION_LOCAL] =
        {
            .name = "SHOAL_LOCAL",
            .kind = BASE_OPTION_BOOL,
            .default_text = "1",
            .maximum = 1,
            .help = "0: ranks of one host exchange messages instead of reading each other's "
                    "memory; set it to compare, or to work round a fault",
        },
    [OPTION_TUNE] =
        {
            .name = "SHOAL_TUNE",
            .kind = BASE_OPTION_BOOL,
            .default_text = "1",
            .maximum = 1,
            .help = "0: thresholds between ranks of one host are the built-in ones, whatever "
                    "`shoal tune` measured; set it to compare",
        },
    [OPTION_FUSE_BYTES] =
        {
            .name = "SHOAL_FUSE_BYTES",
            .kind = BASE_OPTION_BYTES,
            .default_text = "0",
            .minimum = 4 * KIB,
            .maximum = GIB,
            .zero_too = true,
            .help = "size of a fusion buffer, which goes out when it is full; 0: a 64th of the "
                    "gradients, 256K to 4M; raise it where messages are slow to begin, lower it to "
                    "hide the end of the backward pass",
        },
    [OPTION_FUSE_IN_FLIGHT] =
        {
            .name = "SHOAL_FUSE_IN_FLIGHT",
            .kind = BASE_OPTION_INT,
            .default_text = "0",
            .minimum = 1,
            .maximum = 64,
            .zero_too = true,
            .help = "fusion buffers on their way at a time; 0: 2, with servers 4; raise it on "
                    "links with long round trips; with 1, what the next pass needs first goes "
                    "first most strictly",
        },
    [OPTION_TORCH_SHARED] =
        {
            .name = "SHOAL_TORCH_SHARED",
            .kind = BASE_OPTION_BOOL,
            .default_text = "1",
            .maximum = 1,
            .help = "0: the buffers of PyTorch's DistributedDataParallel and FSDP stay in private "
                    "memory; set it where shared memory is short",
        },
    [OPTION_SPIN_US] =
        {
            .name = "SHOAL_SPIN_US",
            .kind = BASE_OPTION_INT,
            .default_text = "-1",
            .minimum = -1,
            .maximum = 1000000,
            .help = "how long a waiting rank spins at most before it sleeps, in us; -1: by the "
                    "cores per "
                    "rank; 0 saves power, more answers faster",
        },
    [OPTION_PORT] =
        {
            .name = "SHOAL_PORT",
            .kind = BASE_OPTION_INT,
            .default_text = "0",
            .maximum = 65535,
            .help = "port on which this rank takes links from other hosts; 0: any free one; set it "
                    "where a firewall lets only known ports through",
        },
    [OPTION_STORE] =
        {
            .name = "SHOAL_STORE",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .help = "host:port where the ranks meet, served by rank 0 or the launcher; set it when "
                    "ranks are started by hand, or when the port the launcher implies is taken",
        },
    [OPTION_SECRET] =
        {
            .name = "SHOAL_SECRET",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .help = "the job's secret, any text, the same on all ranks: who does not know it "
                    "cannot join; set it where others can reach the ports",
        },
    [OPTION_RANK] =
        {
            .name = "SHOAL_RANK",
            .kind = BASE_OPTION_INT,
            .default_text = "-1",
            .minimum = -1,
            .maximum = INT32_MAX - 1,
            .help = "this process's rank, from 0; -1: as the launcher says; set it with SHOAL_SIZE "
                    "and SHOAL_STORE when ranks are started by hand",
        },
    [OPTION_SIZE] =
        {
            .name = "SHOAL_SIZE",
            .kind = BASE_OPTION_INT,
            .default_text = "-1",
            .minimum = 1,
            .maximum = INT32_MAX,
            .help = "number of ranks; unset: as the launcher says; set it with SHOAL_RANK",
        },
    [OPTION_SERVERS] =
        {
            .name = "SHOAL_SERVERS",
            .kind = BASE_OPTION_INT,
            .default_text = "0",
            .minimum = 0,
            .maximum = 4096,
            .help = "number of servers, which sum large buffers for the ranks; set it alike on all "
                    "ranks and servers when they are started by hand",
        },
    [OPTION_SERVER] =
        {
            .name = "SHOAL_SERVER",
            .kind = BASE_OPTION_INT,
            .default_text = "-1",
            .minimum = -1,
            .maximum = 4095,
            .help = "this server's number, from 0; set it for `shoal reduce-server`, with "
                    "SHOAL_SERVERS, SHOAL_SIZE and SHOAL_STORE, when it is started by hand",
        },
    [OPTION_SERVER_HOSTS] =
        {
            .name = "SHOAL_SERVER_HOSTS",
            .kind = BASE_OPTION_TEXT,
            .default_text = "",
            .help =
                "the servers' hosts in the order of their numbers, with commas, by which errors "
                "name a server that does not come; `shoal run` sets it",
        },
    [OPTION_CONNECT_TIMEOUT_MS] =
        {
            .name = "SHOAL_CONNECT_TIMEOUT_MS",
            .kind = BASE_OPTION_INT,
            .default_text = "30000",
            .minimum = 1,
            .maximum = INT32_MAX,
            .help = "longest time to open a link to a peer, in ms; raise it on networks that drop "
                    "packets or where hosts answer late",
        },
};

/* Variables that are no options: what launchers, tests and tools tell each other. A trailing '*'
 * stands for any end. */
static const char *const other_names[] = {
    "SHOAL_BUILD",      "SHOAL_FAIL_ALLOC", "SHOAL_LAUNCHED_BY", "SHOAL_LOCAL_RANK",
    "SHOAL_LOCAL_SIZE", "SHOAL_HOSTNAME",   "SHOAL_JOB",         "SHOAL_SOURCE",
    "SHOAL_SANITIZE",   "SHOAL_VHOSTS*",    "SHOAL_TORCH_*",     "SHOAL_BENCH_*",
    "SHOAL_TEST_*",     "SHOAL_DEMO_*",
};

struct option_value {
    int64_t number;
    char text[TEXT_BYTES];
    bool is_set;
};

static struct option_value values[OPTION_COUNT];
static char load_error[BASE_ERROR_TEXT_BYTES]; /* "": the environment was right */
static atomic_bool loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

const struct base_option *base_options(void)
{
    return rows;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static bool unit_shift(char unit, int *shift)
{
    switch (toupper((unsigned char)unit)) {
    case 'K': *shift = 10; return true;
    case 'M': *shift = 20; return true;
    case 'G': *shift = 30; return true;
    case 'T': *shift = 40; return true;
    default: return false;
    }
}

enum shoal_status base_parse_bytes(const char *text, uint64_t *out)
{
    char *end;
    int shift = 0;
    errno = 0;
    uint64_t number = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (!isdigit((unsigned char)text[0]) || errno != 0)
        return base_error(SHOAL_ERR_OPTION, "\"%s\" is not a number of bytes such as 64K", text);
    if (unit_shift(*end, &shift)) {
        end++;
        if (end[0] == 'i' && end[1] == 'B')
            end++;
    }
    end += *end == 'B';
    if (*end != '\0' || number > UINT64_MAX >> shift)
        return base_error(SHOAL_ERR_OPTION,
                          "\"%s\" is not a number of bytes such as 4096, 64K, 4M or 1G", text);
    *out = number << shift;
    return SHOAL_OK;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || isspace((unsigned char)text[0]))
        return false;
    *out = number;
    return true;
}

static bool parse_bool(const char *text, int64_t *out)
{
    static const char *const words[] = {"0", "1", "off", "on", "no", "yes", "false", "true"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = (int64_t)(i % 2);
            return true;
        }
    }
    return false;
}

static bool parse_bytes(const char *text, int64_t *out)
{
    uint64_t number;
    if (base_parse_bytes(text, &number) != SHOAL_OK || number > INT64_MAX)
        return false;
    *out = (int64_t)number;
    return true;
}

static bool one_of(const char *choices, const char *text)
{
    size_t bytes = strlen(text);
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (bytes > 0 && strncmp(at, text, bytes) == 0 && (at[bytes] == '|' || at[bytes] == '\0'))
            return true;
    }
    return false;
}

static bool in_range(const struct base_option *row, int64_t number)
{
    if (row->zero_too && number == 0)
        return true;
    bool power = number > 0 && (number & (number - 1)) == 0;
    return number >= row->minimum && number <= row->maximum && (power || !row->power_of_two);
}

static bool parse_value(const struct base_option *row, const char *text, int64_t *out)
{
    *out = 0;
    switch (row->kind) {
    case BASE_OPTION_INT: return parse_int(text, out) && in_range(row, *out);
    case BASE_OPTION_BYTES: return parse_bytes(text, out) && in_range(row, *out);
    case BASE_OPTION_BOOL: return parse_bool(text, out);
    case BASE_OPTION_TEXT:
        return strlen(text) < TEXT_BYTES && (row->choices == NULL || one_of(row->choices, text));
    }
    return false;
}

/* ---- words about rows ------------------------------------------------------------------------ */

const char *base_bytes_text(uint64_t bytes, char text[BASE_BYTES_TEXT_BYTES])
{
    static const char units[] = " KMGT";
    int unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && units[unit + 1] != '\0') {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, BASE_BYTES_TEXT_BYTES, unit == 0 ? "%" PRIu64 : "%" PRIu64 "%c", bytes,
             units[unit]);
    return text;
}

void base_option_range(enum base_option_id id, char *text, size_t bytes)
{
    const struct base_option *row = &rows[id];
    char low[BASE_BYTES_TEXT_BYTES], high[BASE_BYTES_TEXT_BYTES];
    switch (row->kind) {
    case BASE_OPTION_TEXT:
        snprintf(text, bytes, "%s", row->choices != NULL ? row->choices : "text");
        return;
    case BASE_OPTION_BOOL: snprintf(text, bytes, "0 or 1"); return;
    case BASE_OPTION_INT:
        snprintf(low, sizeof(low), "%" PRId64, row->minimum);
        snprintf(high, sizeof(high), "%" PRId64, row->maximum);
        break;
    case BASE_OPTION_BYTES:
        base_bytes_text((uint64_t)row->minimum, low);
        base_bytes_text((uint64_t)row->maximum, high);
        break;
    }
    snprintf(text, bytes, "%s to %s%s%s", low, high, row->zero_too ? ", or 0" : "",
             row->power_of_two ? ", a power of two" : "");
}

enum shoal_status base_option_parse(enum base_option_id id, const char *text, int64_t *out)
{
    int64_t number;
    if (!parse_value(&rows[id], text, &number)) {
        char range[128];
        base_option_range(id, range, sizeof(range));
        if (rows[id].kind == BASE_OPTION_TEXT && rows[id].choices == NULL)
            snprintf(range, sizeof(range), "at most %d characters", TEXT_BYTES - 1);
        return base_error(SHOAL_ERR_OPTION, "%s=\"%.100s\" is not allowed: it takes %s",
                          rows[id].name, text, range);
    }
    *out = number;
    return SHOAL_OK;
}

/* Edit distance with neighbours swapped counted once, or `limit` + 1 when it is more. */
static int edit_distance(const char *a, const char *b, int limit)
{
    int rows_kept[3][NAME_BYTES_MAX + 1];
    int a_bytes = (int)strlen(a), b_bytes = (int)strlen(b);
    if (a_bytes > NAME_BYTES_MAX || b_bytes > NAME_BYTES_MAX || abs(a_bytes - b_bytes) > limit)
        return limit + 1;
    for (int j = 0; j <= b_bytes; j++)
        rows_kept[0][j] = j;
    for (int i = 1; i <= a_bytes; i++) {
        int *row = rows_kept[i % 3], *above = rows_kept[(i + 2) % 3], *two = rows_kept[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_bytes; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows_kept[a_bytes % 3][b_bytes];
}

const char *base_nearest(const char *word, const char *const *candidates, size_t count)
{
    int limit = (int)strlen(word) / 3;
    if (limit > 3)
        limit = 3;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, candidates[i], limit);
        if (distance <= limit) {
            nearest = candidates[i];
            limit = distance - 1;
        }
    }
    return nearest;
}

/* ---- the environment ------------------------------------------------------------------------- */

static bool is_other_name(const char *name)
{
    for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++) {
        size_t bytes = strcspn(other_names[i], "*");
        bool open_end = other_names[i][bytes] == '*';
        if (strncmp(name, other_names[i], bytes) == 0 && (open_end || name[bytes] == '\0'))
            return true;
    }
    return false;
}

static bool is_row(const char *name)
{
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (strcmp(rows[id].name, name) == 0)
            return true;
    }
    return false;
}

static enum shoal_status check_name(const char *name)
{
    if (is_row(name) || is_other_name(name))
        return SHOAL_OK;
    const char *names[OPTION_COUNT];
    for (int id = 0; id < OPTION_COUNT; id++)
        names[id] = rows[id].name;
    const char *nearest = base_nearest(name, names, OPTION_COUNT);
    if (nearest != NULL)
        return base_error(SHOAL_ERR_OPTION, "unknown variable %s: did you mean %s?", name, nearest);
    return base_error(SHOAL_ERR_OPTION,
                      "unknown variable %s: `shoal info --options` lists all options", name);
}

/* The first unknown SHOAL_* variable is an error. */
static enum shoal_status check_names(void)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
            continue;
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        TRY(check_name(name));
    }
    return SHOAL_OK;
}

/* Sets the row's value: its variable's, or the default where there is none or it is wrong. An empty
 * variable counts as none. */
static enum shoal_status read_row(enum base_option_id id)
{
    const char *text = getenv(rows[id].name);
    struct option_value *value = &values[id];
    enum shoal_status status = SHOAL_OK;
    *value = (struct option_value){.is_set = text != NULL && text[0] != '\0'};
    if (value->is_set)
        status = base_option_parse(id, text, &value->number);
    if (!value->is_set || status != SHOAL_OK) {
        text = rows[id].default_text;
        if (!parse_value(&rows[id], text, &value->number))
            value->number = strtoll(text, NULL, 10);
    }
    if (rows[id].kind == BASE_OPTION_TEXT)
        snprintf(value->text, sizeof(value->text), "%s", text);
    return status;
}

static void load(void)
{
    pthread_mutex_lock(&load_lock);
    if (!atomic_load(&loaded)) {
        load_error[0] = '\0';
        for (int id = 0; id < OPTION_COUNT; id++) {
            if (read_row((enum base_option_id)id) != SHOAL_OK && load_error[0] == '\0')
                snprintf(load_error, sizeof(load_error), "%s", base_error_text());
        }
        if (load_error[0] == '\0' && check_names() != SHOAL_OK)
            snprintf(load_error, sizeof(load_error), "%s", base_error_text());
        atomic_store_explicit(&loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&load_lock);
}

static void load_once(void)
{
    if (!atomic_load_explicit(&loaded, memory_order_acquire))
        load();
}

enum shoal_status base_options_load(void)
{
    load_once();
    if (load_error[0] != '\0')
        return base_error(SHOAL_ERR_OPTION, "%s", load_error);
    return SHOAL_OK;
}

int64_t base_option_int(enum base_option_id id)
{
    load_once();
    return values[id].number;
}

const char *base_option_text(enum base_option_id id)
{
    load_once();
    return values[id].text[0] != '\0' ? values[id].text : NULL;
}

bool base_option_is_set(enum base_option_id id)
{
    load_once();
    return values[id].is_set;
}

void base_options_reset(void)
{
    pthread_mutex_lock(&load_lock);
    atomic_store(&loaded, false);
    pthread_mutex_unlock(&load_lock);
}
