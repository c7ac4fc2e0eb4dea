/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.c: ends blocking calls before their deadline, because the user says so.
 *
 * An interpreter runs its signal handlers only between calls of the library, so without a question
 * from inside a call a Ctrl-C would wait for the deadline. The question is asked where a call
 * sleeps anyway, so it costs nothing while the ranks are on time.
 */
#include <stdio.h>

#include "base/clock.h"
#include "comm/comm.h"

#define TELL_MS      100
#define ASK_EVERY_NS (COMM_TICK_MS * BASE_NS_PER_MS / 2)

void comm_group_fail(struct comm_group *group, enum shoal_status status, const char *text)
{
    comm_group_break(group, status, "%s", text);
    if (group->local)
        group->local_fail(group->local);
    comm_progress_wake_all(group->world);
}

void comm_group_tell(struct comm_group *group)
{
    int64_t deadline_ns = base_deadline_ns(TELL_MS);
    comm_progress_go(group->world, true);
    while (!atomic_load(&group->told_why) && base_now_ns() < deadline_ns) {
        base_sleep_ms(1);
        comm_progress_go(group->world, true);
    }
}

void comm_group_abort(struct comm_group *group, const char *reason)
{
    char me[160], text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "group '%s' was aborted by %s: %s", group->name,
             comm_rank_text(group, group->rank, me, sizeof(me)), reason);
    comm_group_fail(group, SHOAL_ERR_ABORTED, text);
}

bool comm_interrupted(struct comm_group *group)
{
    struct comm_interrupt *interrupt = &group->world->interrupt;
    if (!interrupt->ask || !pthread_equal(interrupt->thread, pthread_self()))
        return false;
    int64_t now_ns = base_now_ns();
    if (now_ns < interrupt->next_ns)
        return false;
    interrupt->next_ns = now_ns + ASK_EVERY_NS;
    if (interrupt->ask(interrupt->user) == 0)
        return false;
    comm_group_abort(group, "a call that waited there was interrupted");
    return true;
}
