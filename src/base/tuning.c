/* SPDX-License-Identifier: Apache-2.0 */
/* tuning.c: see tuning.h. */
#include "base/tuning.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"

#define FILE_BYTES_MAX  8192
#define FILE_VERSION    1
#define NAME_BYTES_MAX  96 /* of the processor, in the file's name */
#define LINE_BYTES_MAX  256
#define SYMMETRIC_BYTES (UINT64_C(16) << 10)
#define BLOCK_BYTES     (UINT64_C(512) << 10)
#define THRESHOLD_MAX   (UINT64_C(1) << 40)
#define BLOCK_BYTES_MIN (UINT64_C(4) << 10)
#define BLOCK_BYTES_MAX (UINT64_C(64) << 20)

/* ---- the machine ----------------------------------------------------------------------------- */

/* "model name : X" of the first processor; "" where the kernel does not say. */
static void read_model(char *out, size_t bytes)
{
    char line[LINE_BYTES_MAX];
    FILE *file = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) != 0 || value == NULL)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (file != NULL)
        fclose(file);
}

void base_machine_read(struct base_machine *out)
{
    struct utsname system;
    read_model(out->cpu, sizeof(out->cpu));
    if (out->cpu[0] == '\0')
        snprintf(out->cpu, sizeof(out->cpu), "%.64s",
                 uname(&system) == 0 ? system.machine : "unknown");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int granted = base_cgroup_cores(BASE_CGROUP_LIST, BASE_CGROUP_MOUNT);
    out->cores = online > 0 && online < granted ? (int)online : granted;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct base_tuning base_tuning_default(int ranks)
{
    return (struct base_tuning){.ranks = ranks,
                                .symmetric_bytes = SYMMETRIC_BYTES,
                                .block_bytes = BLOCK_BYTES,
                                .stream_bytes = base_cache_bytes(),
                                .direct_bytes = SYMMETRIC_BYTES};
}

const struct base_tuning *base_tuning_find(const struct base_tuning_table *table, int ranks)
{
    for (int64_t i = 0; i < table->count; i++)
        if (table->rows[i].ranks == ranks)
            return &table->rows[i];
    return NULL;
}

enum shoal_status base_tuning_put(struct base_tuning_table *table, const struct base_tuning *row)
{
    int64_t at = 0;
    while (at < table->count && table->rows[at].ranks < row->ranks)
        at++;
    bool replaces = at < table->count && table->rows[at].ranks == row->ranks;
    if (!replaces && table->count == BASE_TUNING_ROWS_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%d numbers of ranks are kept already, which is all there is room for",
                          BASE_TUNING_ROWS_MAX);
    if (!replaces) {
        memmove(&table->rows[at + 1], &table->rows[at], sizeof(*row) * (size_t)(table->count - at));
        table->count++;
    }
    table->rows[at] = *row;
    return SHOAL_OK;
}

static const struct {
    const char *name;
    size_t offset;
    uint64_t minimum, maximum;
} columns[] = {
    {"symmetric", offsetof(struct base_tuning, symmetric_bytes), 0, THRESHOLD_MAX},
    {"block", offsetof(struct base_tuning, block_bytes), BLOCK_BYTES_MIN, BLOCK_BYTES_MAX},
    {"stream", offsetof(struct base_tuning, stream_bytes), 0, THRESHOLD_MAX},
    {"direct", offsetof(struct base_tuning, direct_bytes), 0, THRESHOLD_MAX},
};

#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

void base_tuning_row_text(const struct base_tuning *row, char text[BASE_TUNING_ROW_BYTES])
{
    size_t used = (size_t)snprintf(text, BASE_TUNING_ROW_BYTES, "ranks %" PRId64, row->ranks);
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        uint64_t bytes;
        char words[BASE_BYTES_TEXT_BYTES];
        memcpy(&bytes, (const char *)row + columns[i].offset, sizeof(bytes));
        used += (size_t)snprintf(text + used, BASE_TUNING_ROW_BYTES - used, " %s %s",
                                 columns[i].name, base_bytes_text(bytes, words));
    }
}

/* The next word of *at, which moves on; "" at the end, or if it does not fit. */
static const char *next_word(const char **at, char word[32])
{
    *at += strspn(*at, " ");
    size_t bytes = strcspn(*at, " ");
    snprintf(word, 32, "%.*s", bytes < 32 ? (int)bytes : 0, *at);
    *at += bytes;
    return word;
}

static enum shoal_status read_threshold(const char *word, size_t column, uint64_t *out)
{
    if (base_parse_bytes(word, out) == SHOAL_OK && *out >= columns[column].minimum &&
        *out <= columns[column].maximum)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_FORMAT, "\"%s\" is no value of %s", word, columns[column].name);
}

enum shoal_status base_tuning_row_read(const char *text, struct base_tuning *out)
{
    char word[32], rest[2];
    struct base_tuning row = {0};
    if (strcmp(next_word(&text, word), "ranks") != 0)
        return base_error(SHOAL_ERR_FORMAT, "\"%s\" is not understood", word);
    if (sscanf(next_word(&text, word), "%4" SCNd64 "%1s", &row.ranks, rest) != 1 || row.ranks < 2 ||
        row.ranks > BASE_TUNING_RANKS_MAX)
        return base_error(SHOAL_ERR_FORMAT, "\"%s\" is no number of ranks", word);
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        uint64_t bytes;
        if (strcmp(next_word(&text, word), columns[i].name) != 0)
            return base_error(SHOAL_ERR_FORMAT, "\"%s\" stands where %s is expected", word,
                              columns[i].name);
        TRY(read_threshold(next_word(&text, word), i, &bytes));
        memcpy((char *)&row + columns[i].offset, &bytes, sizeof(bytes));
    }
    if (text[strspn(text, " ")] != '\0')
        return base_error(SHOAL_ERR_FORMAT, "\"%.40s\" is too much", text);
    *out = row;
    return SHOAL_OK;
}

/* ---- the file's text ------------------------------------------------------------------------- */

/* The lines in the order in which they must come. */
enum part { PART_VERSION, PART_CPU, PART_CORES, PART_ROWS, PART_END };

struct reading {
    enum part part;
    struct base_machine machine;
    struct base_tuning_table table;
};

/* What stands behind the word, NULL if the line does not begin with it. */
static const char *after(const char *line, const char *word)
{
    size_t bytes = strlen(word);
    return strncmp(line, word, bytes) == 0 && line[bytes] == ' ' ? line + bytes + 1 : NULL;
}

static enum shoal_status read_head_line(struct reading *reading, const char *line)
{
    static const char *const words[] = {"shoal-tune", "cpu", "cores"};
    char version[16], cores[16];
    snprintf(version, sizeof(version), "%d", FILE_VERSION);
    snprintf(cores, sizeof(cores), "%d", reading->machine.cores);
    const char *const expected[] = {version, reading->machine.cpu, cores};
    const char *value = after(line, words[reading->part]);
    if (value == NULL)
        return base_error(SHOAL_ERR_FORMAT, "\"%.40s\" stands where %s is expected", line,
                          words[reading->part]);
    if (strcmp(value, expected[reading->part]) != 0)
        return base_error(SHOAL_ERR_FORMAT, "it is of another %s: %s is \"%.100s\", here \"%s\"",
                          reading->part == PART_VERSION ? "version of shoal" : "machine",
                          words[reading->part], value, expected[reading->part]);
    reading->part++;
    return SHOAL_OK;
}

static enum shoal_status read_line(struct reading *reading, const char *line)
{
    struct base_tuning row;
    if (line[0] == '#')
        return SHOAL_OK;
    if (reading->part < PART_ROWS)
        return read_head_line(reading, line);
    if (reading->part == PART_END)
        return base_error(SHOAL_ERR_FORMAT, "there is more behind the end");
    if (strcmp(line, "end") == 0) {
        reading->part = PART_END;
        return SHOAL_OK;
    }
    TRY(base_tuning_row_read(line, &row));
    if (base_tuning_find(&reading->table, (int)row.ranks) != NULL)
        return base_error(SHOAL_ERR_FORMAT, "a second row for %" PRId64 " ranks", row.ranks);
    return base_tuning_put(&reading->table, &row);
}

/* text ends with a NUL, and may hold others: then it is cut there and thus no whole file. */
static enum shoal_status read_text(const char *path, char *text, struct base_tuning_table *out)
{
    struct reading reading = {.part = PART_VERSION};
    base_machine_read(&reading.machine);
    int number = 1;
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1, number++) {
        *end = '\0';
        if (read_line(&reading, text) != SHOAL_OK)
            return base_error_context(SHOAL_ERR_FORMAT, "%s, line %d", path, number);
    }
    if (reading.part != PART_END || *text != '\0')
        return base_error(SHOAL_ERR_FORMAT, "%s is only a part of a file", path);
    *out = reading.table;
    return SHOAL_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

enum shoal_status base_tuning_path(char path[BASE_TUNING_PATH_BYTES])
{
    struct base_machine machine;
    char name[NAME_BYTES_MAX] = "";
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool in_cache = cache != NULL && cache[0] == '/';
    if (!in_cache && (home == NULL || home[0] != '/'))
        return base_error(SHOAL_ERR_OPTION,
                          "neither XDG_CACHE_HOME nor HOME names a folder for the cache");
    base_machine_read(&machine);
    size_t used = 0;
    for (const char *at = machine.cpu; *at != '\0' && used + 1 < sizeof(name); at++) {
        if (isalnum((unsigned char)*at))
            name[used++] = *at;
        else if (used > 0 && name[used - 1] != '-')
            name[used++] = '-';
    }
    int bytes = snprintf(path, BASE_TUNING_PATH_BYTES, "%s%s/shoal/tune-%s-%d-cores.txt",
                         in_cache ? cache : home, in_cache ? "" : "/.cache", name, machine.cores);
    if (bytes >= BASE_TUNING_PATH_BYTES)
        return base_error(SHOAL_ERR_OPTION, "the name of the cache's folder is too long");
    return SHOAL_OK;
}

/* At most `bytes`; how many there were, -1 on failure. */
static ssize_t read_fully(int fd, char *out, size_t bytes)
{
    size_t used = 0;
    while (used < bytes) {
        ssize_t count = read(fd, out + used, bytes - used);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        used += (size_t)count;
    }
    return (ssize_t)used;
}

static enum shoal_status read_open(const char *path, int fd, struct base_tuning_table *out)
{
    struct stat what;
    char text[FILE_BYTES_MAX + 1];
    if (fstat(fd, &what) == 0 && !S_ISREG(what.st_mode))
        return base_error(SHOAL_ERR_FORMAT, "%s is no file", path);
    ssize_t bytes = read_fully(fd, text, sizeof(text));
    if (bytes < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading %s", path);
    if (bytes > FILE_BYTES_MAX)
        return base_error(SHOAL_ERR_FORMAT, "%s is larger than %d bytes", path, FILE_BYTES_MAX);
    text[bytes] = '\0';
    return read_text(path, text, out);
}

enum shoal_status base_tuning_read(const char *path, struct base_tuning_table *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo would wait for a writer */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        *out = (struct base_tuning_table){0};
        return SHOAL_OK;
    }
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    enum shoal_status status = read_open(path, fd, out);
    close(fd);
    return status;
}

/* All folders above the file. */
static enum shoal_status make_folders(const char *path)
{
    char folder[BASE_TUNING_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = strchr(folder + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder %s", folder);
        *at = '/';
    }
    return SHOAL_OK;
}

static bool print_text(FILE *file, const struct base_tuning_table *table)
{
    struct base_machine machine;
    char row[BASE_TUNING_ROW_BYTES];
    base_machine_read(&machine);
    fprintf(
        file,
        "# Thresholds between ranks of one host, measured by `shoal tune`. Shoal reads this file\n"
        "# when a group is made; remove it to go back to the defaults.\n"
        "shoal-tune %d\ncpu %s\ncores %d\n",
        FILE_VERSION, machine.cpu, machine.cores);
    for (int64_t i = 0; i < table->count; i++) {
        base_tuning_row_text(&table->rows[i], row);
        fprintf(file, "%s\n", row);
    }
    fprintf(file, "end\n");
    return fflush(file) == 0 && ferror(file) == 0 && fsync(fileno(file)) == 0;
}

enum shoal_status base_tuning_write(const char *path, const struct base_tuning_table *table)
{
    char draft[BASE_TUNING_PATH_BYTES + 16];
    TRY(make_folders(path));
    snprintf(draft, sizeof(draft), "%s.XXXXXX", path);
    int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making %s", draft);
    FILE *file = fdopen(fd, "w");
    bool good = file != NULL && print_text(file, table);
    int cause = errno;
    if (file != NULL)
        fclose(file);
    else
        close(fd);
    if (good && rename(draft, path) == 0)
        return SHOAL_OK;
    cause = good ? errno : cause;
    unlink(draft);
    return base_error_errno(SHOAL_ERR_SYSTEM, cause, "writing %s", path);
}

/* ---- in use ---------------------------------------------------------------------------------- */

enum shoal_status base_tuning_load(struct base_tuning_table *out)
{
    char path[BASE_TUNING_PATH_BYTES];
    *out = (struct base_tuning_table){0};
    if (base_option_int(OPTION_TUNE) == 0 || base_tuning_path(path) != SHOAL_OK)
        return SHOAL_OK;
    return base_tuning_read(path, out);
}

static struct base_tuning forced;
static bool is_forced;

void base_tuning_force(const struct base_tuning *row)
{
    is_forced = row != NULL;
    if (is_forced)
        forced = *row;
}

const struct base_tuning *base_tuning_forced(void)
{
    return is_forced ? &forced : NULL;
}
