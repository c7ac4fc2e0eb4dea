/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: lines on stderr, each with time, host, rank. The library never prints to stdout. Level by
 * option SHOAL_LOG (error, warn, info, debug; default warn). The first to know logs once.
 */
#ifndef SHOAL_BASE_LOG_H
#define SHOAL_BASE_LOG_H

enum base_log_level { BASE_LOG_ERROR = 0, BASE_LOG_WARN, BASE_LOG_INFO, BASE_LOG_DEBUG };

void base_log(enum base_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether lines of that level are printed. */
int base_log_enabled(enum base_log_level level);
/* The rank that lines carry; -1: none. */
void base_log_set_rank(int rank);
/* The same for a process that is a server. */
void base_log_set_server(int number);
/* This host's name in lines and messages: SHOAL_HOSTNAME, as the launcher calls it, else the
 * system's. Never empty; valid for ever. */
const char *base_host_name(void);

#endif
