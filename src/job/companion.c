/* SPDX-License-Identifier: Apache-2.0 */
/* companion.c: its stderr is a pipe, whose end says that it has ended. */
#include "job/companion.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "job/outcome.h"

#define WORDS_MAX 32
#define READ_MAX  4096

enum shoal_status companion_start(struct companion *companion, char *const *words)
{
    char path[LAUNCH_PATH_BYTES];
    char *argv[WORDS_MAX + 2] = {(char *)"shoal"};
    int count = 0, exec_errno;
    for (; words[count] != NULL; count++) {
        if (count == WORDS_MAX)
            return base_error(SHOAL_ERR_LIMIT, "the companion %s has more than %d arguments",
                              words[0], WORDS_MAX);
        argv[count + 1] = words[count];
    }
    struct launch_program program = {.path = path, .argv = argv, .death_signal = SIGKILL};
    TRY(launch_own_path(path));
    TRY(launch_process_start(&program, &companion->process, &exec_errno));
    launch_fd_close(&companion->process.out);
    companion->name = words[0];
    companion->is_started = true;
    return SHOAL_OK;
}

/* Keeps the last line that has something in it. */
static void take_words(struct companion *companion, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n') {
            companion->line_has_ended = true;
            continue;
        }
        if (companion->line_has_ended)
            companion->word_bytes = 0;
        companion->line_has_ended = false;
        if (companion->word_bytes < sizeof(companion->words))
            companion->words[companion->word_bytes++] = text[i];
    }
}

static enum shoal_status stderr_ready(void *owner, short events)
{
    struct companion *companion = owner;
    char text[READ_MAX];
    (void)events;
    ssize_t got = read(companion->process.err, text, sizeof(text));
    if (got > 0)
        take_words(companion, text, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        companion->has_ended = true;
    return SHOAL_OK;
}

enum shoal_status companion_watch(struct companion *companion, struct launch_loop *loop)
{
    if (!companion->is_started || companion->has_ended)
        return SHOAL_OK;
    return launch_loop_add(
        loop, (struct launch_watch){companion->process.err, POLLIN, stderr_ready, companion});
}

bool companion_has_ended(const struct companion *companion)
{
    return companion->has_ended;
}

void companion_describe(const struct companion *companion, char *out, size_t capacity)
{
    if (companion->word_bytes > 0)
        job_clean_text(companion->words, companion->word_bytes, JOB_REASON_CHARS_MAX, out,
                       capacity);
    else
        snprintf(out, capacity, "InternalServerError: the job's companion %s has ended",
                 companion->name);
}

void companion_end(struct companion *companion)
{
    if (!companion->is_started)
        return;
    kill(companion->process.pid, SIGKILL);
    while (waitpid(companion->process.pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    launch_process_close(&companion->process);
    companion->is_started = false;
}
