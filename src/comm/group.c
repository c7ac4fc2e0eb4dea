/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: members of a group, its texts, and how it breaks: the first cause is kept for good. */
#include "comm/group.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static enum shoal_status take_arrays(struct comm_group *group, int world_size)
{
    TRY(BASE_NEW_ARRAY(&group->members, group->size, "a group's members"));
    TRY(BASE_NEW_ARRAY(&group->rank_of, world_size, "a group's rank table"));
    TRY(BASE_NEW_ARRAY(&group->knows_why, group->size, "a group's marks"));
    return BASE_NEW_ARRAY(&group->host_of, group->size, "a group's host table");
}

/* Hosts get numbers in the order of their first rank. */
static void number_hosts(struct comm_group *group, const int *world_host_of)
{
    for (int i = 0; i < group->size; i++) {
        int host = world_host_of[group->members[i]];
        int same = 0;
        while (same < i && world_host_of[group->members[same]] != host)
            same++;
        group->host_of[i] = same < i ? group->host_of[same] : group->host_count++;
    }
    for (int i = 0; i < group->size; i++) {
        if (group->host_of[i] != group->host_of[group->rank])
            continue;
        if (i < group->rank)
            group->local_rank++;
        group->local_size++;
    }
}

enum shoal_status comm_group_make(int world_rank, int world_size, const int *world_host_of,
                                  const int *members, int size, const char *name, uint64_t context,
                                  struct comm_group **out)
{
    struct comm_group *group = NULL;
    TRY(BASE_NEW(&group, "a group"));
    group->size = size;
    group->context = context;
    group->rank = -1;
    snprintf(group->name, sizeof(group->name), "%s", name);
    enum shoal_status status = take_arrays(group, world_size);
    if (status != SHOAL_OK) {
        comm_group_dispose(group);
        return status;
    }
    memcpy(group->members, members, sizeof(int) * (size_t)size);
    for (int i = 0; i < world_size; i++)
        group->rank_of[i] = -1;
    for (int i = 0; i < size; i++)
        group->rank_of[members[i]] = i;
    group->rank = group->rank_of[world_rank];
    BASE_ASSERT(group->rank >= 0);
    number_hosts(group, world_host_of);
    *out = group;
    return SHOAL_OK;
}

void comm_group_dispose(struct comm_group *group)
{
    if (!group)
        return;
    base_free(group->members);
    base_free(group->rank_of);
    base_free(group->host_of);
    base_free(group->knows_why);
    base_free(group);
}

int comm_group_rank_hosts(const struct comm_group *group)
{
    int count = 0;
    for (int i = 0; i < comm_group_rank_count(group); i++)
        if (group->host_of[i] >= count)
            count = group->host_of[i] + 1;
    return count;
}

bool comm_group_break(struct comm_group *group, enum shoal_status status, const char *format, ...)
{
    int works = 0;
    if (!atomic_compare_exchange_strong(&group->failure.state, &works, 1))
        return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(group->failure.text, sizeof(group->failure.text), format, arguments);
    va_end(arguments);
    group->failure.status = status;
    atomic_store_explicit(&group->failure.state, 2, memory_order_release);
    struct comm_group *other = group->served ? group->served : group->serves;
    if (other)
        comm_group_break(other, status, "%s", group->failure.text);
    return true;
}

enum shoal_status comm_group_health(struct comm_group *group)
{
    int state = atomic_load_explicit(&group->failure.state, memory_order_acquire);
    if (state == 0)
        return SHOAL_OK;
    while (state == 1) {
        sched_yield();
        state = atomic_load_explicit(&group->failure.state, memory_order_acquire);
    }
    return base_error(group->failure.status, "%s", group->failure.text);
}

/* Appends to text[*used...) and never beyond text_bytes. */
static void append(char *text, size_t text_bytes, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void append(char *text, size_t text_bytes, size_t *used, const char *format, ...)
{
    if (*used >= text_bytes)
        return;
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(text + *used, text_bytes - *used, format, arguments);
    va_end(arguments);
    if (wrote > 0)
        *used += (size_t)wrote;
}

#define RANKS_SHOWN 12 /* ranges named before "and N more" */

/* What comm_ranks_text writes, so far. */
struct list {
    char *text;
    size_t text_bytes, used;
    int ranges, left_out;
};

/* Those flagged of `count` with this word for one of them, as ranges of numbers from 0. */
static void append_flagged(struct list *list, const char *word, const bool *flags, int count)
{
    bool is_first = true;
    for (int i = 0; i < count; i++) {
        if (!flags[i])
            continue;
        int last = i;
        while (last + 1 < count && flags[last + 1])
            last++;
        if (list->ranges++ >= RANKS_SHOWN) {
            list->left_out += last - i + 1;
        } else {
            append(list->text, list->text_bytes, &list->used, "%s%s%d",
                   list->ranges > 1 ? ", " : "", is_first ? word : "", i);
            if (last > i)
                append(list->text, list->text_bytes, &list->used, "-%d", last);
        }
        is_first = false;
        i = last;
    }
}

const char *comm_ranks_text(const struct comm_group *group, const bool *flags, char *text,
                            size_t text_bytes)
{
    struct list list = {.text = text, .text_bytes = text_bytes};
    int rank_count = comm_group_rank_count(group);
    text[0] = '\0';
    append_flagged(&list, "rank ", flags, rank_count);
    append_flagged(&list, "server ", flags + rank_count, group->server_count);
    if (list.left_out > 0)
        append(text, text_bytes, &list.used, " and %d more", list.left_out);
    return text;
}
