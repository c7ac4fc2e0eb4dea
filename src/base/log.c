/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c: one write(2) per line, so that lines of many processes on one stderr don't mix, and
 * nothing is buffered when the process dies.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/options.h"

#define LINE_BYTES 2048

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static atomic_int log_rank = -1, log_server = -1;
static char host_name[128];
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void read_host_name(void)
{
    const char *given = getenv("SHOAL_HOSTNAME");
    if (given != NULL && given[0] != '\0')
        snprintf(host_name, sizeof(host_name), "%s", given);
    else if (gethostname(host_name, sizeof(host_name) - 1) != 0 || host_name[0] == '\0')
        snprintf(host_name, sizeof(host_name), "localhost");
}

const char *base_host_name(void)
{
    pthread_once(&host_once, read_host_name);
    return host_name;
}

void base_log_set_rank(int rank)
{
    atomic_store(&log_rank, rank);
}

void base_log_set_server(int number)
{
    atomic_store(&log_server, number);
}

int base_log_enabled(enum base_log_level level)
{
    const char *wanted = base_option_text(OPTION_LOG);
    int highest = BASE_LOG_WARN;
    if (wanted != NULL) {
        if (strcmp(wanted, "error") == 0)
            highest = BASE_LOG_ERROR;
        else if (strcmp(wanted, "info") == 0)
            highest = BASE_LOG_INFO;
        else if (strcmp(wanted, "debug") == 0)
            highest = BASE_LOG_DEBUG;
    }
    return (int)level <= highest;
}

/* "shoal 12:00:00.123 host rank 3 warning: ", its length. */
static size_t line_head(char *line, size_t bytes, enum base_log_level level)
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    char who[32] = "";
    int rank = atomic_load(&log_rank), server = atomic_load(&log_server);
    if (server >= 0)
        snprintf(who, sizeof(who), " server %d", server);
    else if (rank >= 0)
        snprintf(who, sizeof(who), " rank %d", rank);
    int used =
        snprintf(line, bytes, "shoal %02d:%02d:%02d.%03ld %s%s %s: ", parts.tm_hour, parts.tm_min,
                 parts.tm_sec, now.tv_nsec / 1000000, base_host_name(), who, level_names[level]);
    return (size_t)used;
}

void base_log(enum base_log_level level, const char *format, ...)
{
    if (!base_log_enabled(level))
        return;
    char line[LINE_BYTES];
    size_t used = line_head(line, sizeof(line) - 1, level);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line + used, sizeof(line) - 1 - used, format, arguments);
    va_end(arguments);
    if (wanted > 0)
        used += strlen(line + used);
    line[used++] = '\n';
    /* A log that cannot be written has nowhere to complain. */
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}
