/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h: one send or receive on one rank, with its buffer. What a receive got is copied the
 * moment it is done; then the buffer is overwritten, as in operation.h.
 */
#ifndef SHOAL_TESTS_MESSAGE_H
#define SHOAL_TESTS_MESSAGE_H

#include "base/status.h"
#include "support/engines.h"

struct message_options {
    int rank; /* who calls */
    bool receives;
    int peer, tag;
    enum shoal_dtype dtype;
    uint64_t count;
    uint64_t seed; /* of a send's values */
};

struct message {
    struct message_options options;
    struct engines_group *group;
    unsigned char *memory, *got; /* with guards; [memory_bytes] */
    size_t memory_bytes;
    bool done;
    enum shoal_status status;
    char text[BASE_ERROR_TEXT_BYTES];
    struct shoal_recv_info info;
    int64_t deadline_ns, done_ns;
};

/* Makes it and starts it. */
enum shoal_status message_start(struct engines_group *group, const struct message_options *options,
                                struct message **out);
/* Whether the receive got exactly what `from` sends, and nothing around it was touched. */
bool message_got(const struct message *message, const struct message_options *from);
/* Frees it. False if its buffer was touched after it was done. Nothing of it runs any more. */
bool message_end(struct message *message);

#endif
