/* SPDX-License-Identifier: Apache-2.0 */
/* own_program.c: see own_program.h. */
#include "own_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "launch/process.h"

static void child_run(char *const words[], int out)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(out, STDOUT_FILENO);
    execv(words[0], words);
    _exit(LAUNCH_EXIT_NOT_FOUND);
}

static enum shoal_status line_receive(int fd, char *line, size_t capacity)
{
    FILE *file = fdopen(fd, "r");
    if (file == NULL) {
        close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading what was measured");
    }
    if (fgets(line, (int)capacity, file) == NULL)
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return SHOAL_OK;
}

enum shoal_status own_program_line(char *const words[], const char *what, char *line,
                                   size_t capacity)
{
    int ends[2], wait_status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "a pipe for what is measured");
    pid_t pid = fork();
    if (pid == 0)
        child_run(words, ends[1]);
    int cause = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return base_error_errno(SHOAL_ERR_SYSTEM, cause, "starting the ranks");
    }
    enum shoal_status status = line_receive(ends[0], line, capacity);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (wait_status != 0)
        return base_error(SHOAL_ERR_SYSTEM, "%s failed", what);
    return status;
}
