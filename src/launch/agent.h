/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h: the end of a launch that stands on each host, `shoal run-agent`.
 *
 * It starts the ranks of its host, passes on what they print, reports their exits, and ends them
 * when it is told to, when its stdin ends (the launcher is gone, or the connection broke), or by
 * SIGTERM. It exits when nothing that it started is left.
 */
#ifndef SHOAL_LAUNCH_AGENT_H
#define SHOAL_LAUNCH_AGENT_H

/* Runs on stdin and stdout until all is over; the exit status for main(). Two processes: the agent,
 * and a guard above it that ends what is left when the agent itself is killed. */
int launch_agent_main(void);

#endif
