/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c: one turn of an event loop over poll(2). */
#include "launch/loop.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

static enum shoal_status grow(struct launch_loop *loop)
{
    int capacity = loop->capacity > 0 ? loop->capacity * 2 : 32;
    struct launch_watch *watches = NULL;
    struct pollfd *polled = NULL;
    TRY(BASE_NEW_ARRAY(&watches, capacity, "the event loop"));
    enum shoal_status status = BASE_NEW_ARRAY(&polled, capacity, "the event loop");
    if (status != SHOAL_OK) {
        base_free(watches);
        return status;
    }
    if (loop->count > 0)
        memcpy(watches, loop->watches, sizeof(*watches) * (size_t)loop->count);
    base_free(loop->watches);
    base_free(loop->polled);
    loop->watches = watches;
    loop->polled = polled;
    loop->capacity = capacity;
    return SHOAL_OK;
}

enum shoal_status launch_loop_add(struct launch_loop *loop, struct launch_watch watch)
{
    if (loop->count == loop->capacity)
        TRY(grow(loop));
    loop->watches[loop->count++] = watch;
    return SHOAL_OK;
}

enum shoal_status launch_loop_turn(struct launch_loop *loop, int64_t deadline_ns)
{
    int count = loop->count;
    for (int i = 0; i < count; i++)
        loop->polled[i] = (struct pollfd){loop->watches[i].fd, loop->watches[i].events, 0};
    loop->count = 0;
    int timeout_ms = deadline_ns == BASE_NO_DEADLINE ? -1 : base_left_ms(deadline_ns);
    if (poll(loop->polled, (nfds_t)count, timeout_ms) < 0) {
        if (errno == EINTR)
            return SHOAL_OK;
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "poll of %d descriptors", count);
    }
    enum shoal_status result = SHOAL_OK;
    for (int i = 0; i < count; i++) {
        if (loop->polled[i].revents == 0)
            continue;
        const struct launch_watch *watch = &loop->watches[i];
        enum shoal_status status = watch->ready(watch->owner, loop->polled[i].revents);
        if (result == SHOAL_OK)
            result = status;
    }
    return result;
}

void launch_loop_release(struct launch_loop *loop)
{
    base_free(loop->watches);
    base_free(loop->polled);
    *loop = (struct launch_loop){0};
}
