/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_progress.c: what `shoal s3` shows while it moves files: a line for each on stdout, or one JSON
 * document; on a terminal also a bar on stderr, drawn at most ten times a second by whichever
 * thread has moved bytes.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "json_text.h"
#include "s3.h"
#include "scaled_text.h"

#define DRAW_NS   (100 * BASE_NS_PER_MS)
#define BAR_CELLS 24
#define BAR_BYTES 256

struct s3_progress {
    bool has_bar, wants_json, is_quiet, is_dry;
    pthread_mutex_t lock; /* of stdout and stderr, and of what follows */
    int64_t files_planned, files_done, files_failed, bytes_planned;
    bool is_drawn;
    atomic_int_fast64_t bytes_done, drawn_ns;
    int64_t begun_ns;
};

enum shoal_status s3_progress_create(const struct s3_wish *wish, struct s3_progress **out)
{
    struct s3_progress *progress;
    TRY(BASE_NEW(&progress, "what was done"));
    progress->wants_json = wish->wants_json;
    progress->is_quiet = wish->is_quiet;
    progress->is_dry = wish->is_dry;
    progress->has_bar = isatty(STDERR_FILENO) && !wish->is_quiet && !wish->wants_json;
    progress->begun_ns = base_now_ns();
    pthread_mutex_init(&progress->lock, NULL);
    if (progress->wants_json)
        fputs("{\"files\": [", stdout);
    *out = progress;
    return SHOAL_OK;
}

void s3_progress_plan(struct s3_progress *progress, int64_t files, int64_t bytes)
{
    pthread_mutex_lock(&progress->lock);
    progress->files_planned += files;
    progress->bytes_planned += bytes;
    pthread_mutex_unlock(&progress->lock);
}

/* ---- the bar ----------------------------------------------------------------------------------
 */

static void bar_clear(struct s3_progress *progress)
{
    if (progress->is_drawn)
        fputs("\r\033[K", stderr);
    progress->is_drawn = false;
}

/* A line that is longer than the terminal's can't be drawn over. */
static int line_bytes_max(void)
{
    struct winsize size;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return is_known && size.ws_col < BAR_BYTES ? size.ws_col - 1 : BAR_BYTES;
}

static void bar_draw(struct s3_progress *progress, int64_t now_ns)
{
    double done = (double)atomic_load(&progress->bytes_done);
    double all = (double)progress->bytes_planned;
    double share = all > 0 ? done / all : 0;
    double seconds = (double)(now_ns - progress->begun_ns) / (double)BASE_NS_PER_S;
    char bar[BAR_CELLS + 1], line[BAR_BYTES];
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    memset(bar, '.', BAR_CELLS);
    memset(bar, '=', (size_t)(share * BAR_CELLS));
    bar[BAR_CELLS] = '\0';
    snprintf(line, sizeof(line), "[%s] %3.0f %%  %s of %s  %s/s  %lld of %lld files", bar,
             share * 100, scaled_bytes_text(done), scaled_bytes_text(all),
             scaled_bytes_text(seconds > 0 ? done / seconds : 0), (long long)progress->files_done,
             (long long)progress->files_planned);
    fprintf(stderr, "\r%.*s\033[K", line_bytes_max(), line);
    fflush(stderr);
    progress->is_drawn = true;
}

void s3_progress_bytes(void *user, int64_t bytes)
{
    struct s3_progress *progress = user;
    atomic_fetch_add(&progress->bytes_done, bytes);
    int64_t now_ns = base_now_ns();
    int_fast64_t drawn_ns = atomic_load(&progress->drawn_ns);
    if (!progress->has_bar || now_ns - drawn_ns < DRAW_NS ||
        !atomic_compare_exchange_strong(&progress->drawn_ns, &drawn_ns, now_ns))
        return;
    pthread_mutex_lock(&progress->lock);
    bar_draw(progress, now_ns);
    pthread_mutex_unlock(&progress->lock);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static void row_print(const struct s3_progress *progress, const char *verb, const char *from,
                      const char *to, const char *error)
{
    bool is_first = progress->files_done + progress->files_failed == 0;
    fputs(is_first ? "\n  {\"did\": " : ",\n  {\"did\": ", stdout);
    json_print_string(verb, stdout);
    fputs(", \"from\": ", stdout);
    json_print_string(from, stdout);
    if (to != NULL) {
        fputs(", \"to\": ", stdout);
        json_print_string(to, stdout);
    }
    if (error != NULL) {
        fputs(", \"error\": ", stdout);
        json_print_string(error, stdout);
    }
    fputc('}', stdout);
}

void s3_progress_done(struct s3_progress *progress, const char *verb, const char *from,
                      const char *to)
{
    pthread_mutex_lock(&progress->lock);
    if (progress->wants_json) {
        row_print(progress, verb, from, to, NULL);
    } else if (!progress->is_quiet) {
        bar_clear(progress);
        printf("%s%s: %s%s%s\n", progress->is_dry ? "(dry run) " : "", verb, from,
               to != NULL ? " to " : "", to != NULL ? to : "");
        if (progress->has_bar)
            fflush(stdout);
    }
    progress->files_done++;
    pthread_mutex_unlock(&progress->lock);
}

void s3_progress_failed(struct s3_progress *progress, const char *verb, const char *from,
                        const char *to)
{
    pthread_mutex_lock(&progress->lock);
    if (progress->wants_json) {
        row_print(progress, verb, from, to, base_error_text());
    } else {
        bar_clear(progress);
        fflush(stdout);
        fprintf(stderr, "%s failed: %s%s%s: %s\n", verb, from, to != NULL ? " to " : "",
                to != NULL ? to : "", base_error_text());
    }
    progress->files_failed++;
    pthread_mutex_unlock(&progress->lock);
}

int64_t s3_progress_end(struct s3_progress *progress)
{
    int64_t failed = progress->files_failed;
    double seconds = (double)(base_now_ns() - progress->begun_ns) / (double)BASE_NS_PER_S;
    bar_clear(progress);
    if (progress->wants_json)
        printf("\n], \"done\": %lld, \"failed\": %lld, \"bytes\": %lld, \"seconds\": %.3f}\n",
               (long long)progress->files_done, (long long)failed,
               (long long)atomic_load(&progress->bytes_done), seconds);
    pthread_mutex_destroy(&progress->lock);
    base_free(progress);
    return failed;
}
