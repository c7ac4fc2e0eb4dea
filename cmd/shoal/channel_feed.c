/* SPDX-License-Identifier: Apache-2.0 */
/* channel_feed.c: `shoal channel-feed FOLDER`: fills a job's pipes; its supervisor starts it. */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/status.h"
#include "channel/channel.h"

int cmd_channel_feed(int argc, char **argv);

static const char help_text[] =
    "usage: shoal channel-feed FOLDER\n"
    "\n"
    "Fills the FIFOs of a job's channels in Pipe mode, epoch after epoch, for as long as the job\n"
    "in FOLDER runs; its supervisor starts it. What it says on stderr becomes the job's failure\n"
    "reason. docs/channels.md\n";

int cmd_channel_feed(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help_text, stdout);
        return 0;
    }
    if (argc != 2) {
        fprintf(stderr, "shoal channel-feed: give the job's folder; see --help\n");
        return EXIT_USAGE;
    }
    channel_feed_run(argv[1]);
    fprintf(stderr, "%s\n", base_error_text());
    return 1;
}
