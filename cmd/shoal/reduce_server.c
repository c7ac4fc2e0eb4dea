/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_server.c: `shoal reduce-server`: a server of a job. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "shoal.h"

int cmd_reduce_server(int argc, char **argv);

#define EXIT_USAGE 2

static void help_print(FILE *out)
{
    fprintf(
        out,
        "usage: shoal reduce-server\n\n"
        "Sums large buffers for the ranks of a job that run on other hosts, and ends with them.\n"
        "`shoal run --servers K` starts it; by hand it takes\n\n"
        "  SHOAL_STORE    host:port where the ranks meet\n"
        "  SHOAL_SIZE     number of ranks\n"
        "  SHOAL_SERVERS  number of servers, which the ranks are told too\n"
        "  SHOAL_SERVER   this one's number, from 0\n"
        "  SHOAL_SECRET   the job's, where the ranks have one\n");
}

int cmd_reduce_server(int argc, char **argv)
{
    if (argc > 1) {
        bool is_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        help_print(is_help ? stdout : stderr);
        return is_help ? 0 : EXIT_USAGE;
    }
    if (shoal_serve() == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal reduce-server: %s\n", shoal_last_error(NULL));
    return 1;
}
