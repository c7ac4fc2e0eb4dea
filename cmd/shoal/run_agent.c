/* SPDX-License-Identifier: Apache-2.0 */
/* run_agent.c: `shoal run-agent`: what `shoal run` starts on every host. */
#include <stdio.h>
#include <string.h>

#include "launch/agent.h"

int cmd_run_agent(int argc, char **argv);

int cmd_run_agent(int argc, char **argv)
{
    if (argc > 1) {
        fprintf(stderr,
                "%s: shoal run starts this on each host; it takes no argument, and speaks "
                "with its starter over stdin and stdout\n",
                argv[0]);
        return strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    return launch_agent_main();
}
