/* SPDX-License-Identifier: Apache-2.0 */
/* without_service.c: commands of the service, in a build that lacks what the service stands on. */
#include <stdio.h>

int cmd_serve(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_submit(int argc, char **argv);
int cmd_jobs(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_s3(int argc, char **argv);
int cmd_job_supervisor(int argc, char **argv);
int cmd_job_start(int argc, char **argv);
int cmd_channel_feed(int argc, char **argv);

static int left_out(const char *name)
{
    fprintf(stderr,
            "shoal %s: this shoal was built without its service, because libraries that it needs "
            "were missing: install those of docs/dependencies.md and build again\n",
            name);
    return 1;
}

int cmd_job_supervisor(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_job_start(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_channel_feed(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_serve(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_env(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_s3(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_submit(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_jobs(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_describe(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_logs(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}

int cmd_stop(int argc, char **argv)
{
    (void)argc;
    return left_out(argv[0]);
}
