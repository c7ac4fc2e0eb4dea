/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.h: how errors travel inside shoal.
 *
 * Every fallible function returns enum shoal_status. Who detects an error first writes its text
 * with base_error(); callers pass the status on with TRY and may put their own context in front
 * with base_error_context(). The text lives in the thread.
 */
#ifndef SHOAL_BASE_STATUS_H
#define SHOAL_BASE_STATUS_H

#include <stddef.h>

#include "shoal.h"

#define BASE_ERROR_TEXT_BYTES 1024

/* Sets the thread's error text and returns status: `return base_error(SHOAL_ERR_MEMORY, "…")`.
 * Texts say what was wrong, where, and what to do; no trailing newline. */
enum shoal_status base_error(enum shoal_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As base_error with ": <strerror(error_number)>" behind it. */
enum shoal_status base_error_errno(enum shoal_status status, int error_number, const char *format,
                                   ...) __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " in front of the thread's text; returns status. */
enum shoal_status base_error_context(enum shoal_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The thread's error text, "" if none. */
const char *base_error_text(void);
void base_error_clear(void);

/* Passes a failure on. */
#define TRY(call)                               \
    do {                                        \
        enum shoal_status try_status_ = (call); \
        if (try_status_ != SHOAL_OK)            \
            return try_status_;                 \
    } while (0)

/* A bug of ours: prints file, line and condition on stderr and aborts. Kept on in release builds.
 * Never for what peers, the network, memory or the user did. */
#define BASE_ASSERT(condition) \
    ((condition) ? (void)0 : base_assert_failed(__FILE__, __LINE__, #condition))
void base_assert_failed(const char *file, int line, const char *condition)
    __attribute__((noreturn, cold));

#endif
