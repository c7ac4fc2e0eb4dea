/* SPDX-License-Identifier: Apache-2.0 */
/* job_supervisor.c: `shoal job-supervisor FOLDER`: looks after one job; the service starts it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/status.h"
#include "job/supervisor.h"

int cmd_job_supervisor(int argc, char **argv);

static const char help_text[] =
    "usage: shoal job-supervisor FOLDER\n"
    "\n"
    "Runs the job that job.json in FOLDER describes, and leaves exit.json there. The service "
    "starts\n"
    "one for each job; it goes on when the service ends, and answers on the socket in FOLDER. "
    "Says\n"
    "\"ready\" on stdout when it has taken charge of the job. docs/job.md\n";

int cmd_job_supervisor(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help_text, stdout);
        return 0;
    }
    if (argc != 2) {
        fprintf(stderr, "shoal job-supervisor: give the job's folder; see --help\n");
        return EXIT_USAGE;
    }
    if (job_supervisor_run(argv[1], STDOUT_FILENO) != SHOAL_OK) {
        fprintf(stderr, "shoal job-supervisor: %s\n", base_error_text());
        return 1;
    }
    return 0;
}
