/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c: the one table of who wins when.
 *
 * The first row that matches wins, so read it from the top. It looks only at what all ranks share
 * (never at the rank, in_place or alltoallv's counts), so all ranks choose alike.
 *
 * Why: a small message costs rounds, so everything goes in one round among few ranks and in log2 p
 * rounds among many. Where hosts are parts of one machine whose cores they have to share, it costs
 * the cores' time, so there the fewest messages are best. A large one costs bytes on the slowest
 * port: with several ranks on a host the sum is made there first. Then direct and ring have the
 * same least bytes; direct has the fewer rounds, but all its flows meet at each port. Measured on 4
 * and 8 hosts at 1 Gbit/s, large messages (4 MiB and more) were 3 to 12 % nearer to the bound by
 * the ring: ARCHITECTURE.md.
 *
 * Among hundreds of ranks a ring pays its latency 2(p-1) times, which only long blocks hide: with
 * 100 MB at 10 Gbit/s and 50 us it takes at best 1.9 times the bound among 2,048 ranks and 3.8
 * times among 4,096, where halving and doubling stays within 1.01 (`shoal sim allreduce`). Where
 * that would need a fold, since the ranks are no power of two, and so nearly twice the bytes,
 * direct is left.
 *
 * Partial sums of 16-bit floats travel as f32, twice as long. That pays where several ranks share
 * a port, since one f32 sum is no longer than the two inputs that it stands for, and where messages
 * are so small that only rounds count. Elsewhere the direct exchange sends inputs and results only.
 *
 * Above the table stands a promise: with `reproducible` a floating-point sum has one tree whatever
 * the size, which is one reduce over all inputs in rank order, as on the same-host path.
 */
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/layout.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define ANY UINT64_MAX

#define BLOCK_BYTES       (128 * KIB)
#define SEGMENT_BYTES_MIN (16 * KIB)
#define SEGMENT_BYTES_MAX (256 * KIB)
#define SEGMENTS          16 /* of a share */
#define LONG_SEGMENTS     2
#define LONG_HOSTS_MAX    8 /* whose long messages may meet at one port */

enum condition {
    ALWAYS,
    STACKED,        /* several hosts, several ranks on some */
    SAME_WIDTH,     /* partial sums are no wider than elements: not of 16-bit floats */
    LONG_BLOCKS,    /* the same, and a rank's share of the bytes is BLOCK_BYTES or more */
    EVEN_HALVES,    /* the same as SAME_WIDTH, and the ranks are a power of two */
    SERVED,         /* there are servers */
    SERVED_STACKED, /* and several hosts, several ranks on some */
    CROWDED,        /* hosts share too few cores, so messages count more than rounds */
    CROWDED_EVEN    /* and EVEN_HALVES */
};

/* Sizes: `bytes` of what one rank ends or begins with: the whole buffer of allreduce, reduce and
 * broadcast, all p blocks of the others. */
struct row {
    enum coll_kind kind;
    enum condition condition;
    int ranks_max;
    uint64_t bytes_max;
    const char *algorithm;
};

#define MANY INT32_MAX

static const struct row table[] = {
    /* kind, condition, most ranks, most bytes, algorithm */
    {COLL_ALLREDUCE, SERVED_STACKED, MANY, ANY, "two_level"},
    {COLL_ALLREDUCE, SERVED, MANY, ANY, "direct"},
    {COLL_ALLREDUCE, CROWDED_EVEN, 8, 8 * KIB, "recursive_doubling"},
    {COLL_ALLREDUCE, ALWAYS, 8, 8 * KIB, "exchange"},
    {COLL_ALLREDUCE, ALWAYS, MANY, 8 * KIB, "recursive_doubling"},
    {COLL_ALLREDUCE, STACKED, MANY, ANY, "two_level"},
    {COLL_ALLREDUCE, CROWDED_EVEN, 8, 256 * KIB, "halving_doubling"},
    {COLL_ALLREDUCE, ALWAYS, 8, 2 * MIB, "direct"},
    {COLL_ALLREDUCE, SAME_WIDTH, 8, ANY, "ring"},
    {COLL_ALLREDUCE, ALWAYS, 32, ANY, "direct"},
    {COLL_ALLREDUCE, SAME_WIDTH, MANY, 4 * MIB, "halving_doubling"},
    {COLL_ALLREDUCE, LONG_BLOCKS, MANY, ANY, "ring"},
    {COLL_ALLREDUCE, EVEN_HALVES, MANY, ANY, "halving_doubling"},
    {COLL_ALLREDUCE, ALWAYS, MANY, ANY, "direct"},

    {COLL_REDUCE, ALWAYS, 8, 8 * KIB, "exchange"},
    {COLL_REDUCE, ALWAYS, MANY, 8 * KIB, "binomial"},
    {COLL_REDUCE, STACKED, MANY, ANY, "two_level"},
    {COLL_REDUCE, ALWAYS, MANY, ANY, "direct"},

    {COLL_BROADCAST, ALWAYS, 8, 8 * KIB, "exchange"},
    {COLL_BROADCAST, ALWAYS, MANY, 32 * KIB, "binomial"},
    {COLL_BROADCAST, STACKED, MANY, ANY, "two_level"},
    {COLL_BROADCAST, ALWAYS, 64, ANY, "direct"},
    {COLL_BROADCAST, ALWAYS, MANY, ANY, "chain"},

    {COLL_ALLGATHER, CROWDED, 8, 64 * KIB, "bruck"},
    {COLL_ALLGATHER, ALWAYS, 8, 64 * KIB, "direct"},
    {COLL_ALLGATHER, ALWAYS, MANY, 64 * KIB, "bruck"},
    {COLL_ALLGATHER, STACKED, MANY, ANY, "two_level"},
    {COLL_ALLGATHER, ALWAYS, 16, 512 * KIB, "direct"},
    {COLL_ALLGATHER, ALWAYS, 16, ANY, "ring"},
    {COLL_ALLGATHER, ALWAYS, 32, ANY, "direct"},
    {COLL_ALLGATHER, ALWAYS, MANY, ANY, "ring"},

    {COLL_GATHER, ALWAYS, 8, ANY, "direct"},
    {COLL_GATHER, ALWAYS, MANY, 64 * KIB, "binomial"},
    {COLL_GATHER, ALWAYS, MANY, ANY, "direct"},

    {COLL_REDUCE_SCATTER, CROWDED_EVEN, 8, 64 * KIB, "halving"},
    {COLL_REDUCE_SCATTER, ALWAYS, 8, 64 * KIB, "direct"},
    {COLL_REDUCE_SCATTER, ALWAYS, MANY, 64 * KIB, "halving"},
    {COLL_REDUCE_SCATTER, STACKED, MANY, ANY, "two_level"},
    {COLL_REDUCE_SCATTER, ALWAYS, 16, 512 * KIB, "direct"},
    {COLL_REDUCE_SCATTER, SAME_WIDTH, 16, ANY, "ring"},
    {COLL_REDUCE_SCATTER, ALWAYS, 32, ANY, "direct"},
    {COLL_REDUCE_SCATTER, SAME_WIDTH, MANY, ANY, "ring"},
    {COLL_REDUCE_SCATTER, ALWAYS, MANY, ANY, "direct"},

    {COLL_SCATTER, ALWAYS, 8, ANY, "direct"},
    {COLL_SCATTER, ALWAYS, MANY, 64 * KIB, "binomial"},
    {COLL_SCATTER, ALWAYS, MANY, ANY, "direct"},

    {COLL_ALLTOALL, CROWDED, 8, 8 * KIB, "bruck"},
    {COLL_ALLTOALL, ALWAYS, 8, ANY, "direct"},
    {COLL_ALLTOALL, ALWAYS, MANY, 8 * KIB, "bruck"},
    {COLL_ALLTOALL, ALWAYS, 32, ANY, "direct"},
    {COLL_ALLTOALL, ALWAYS, MANY, ANY, "pairwise"},

    {COLL_BARRIER, CROWDED, 8, ANY, "dissemination"},
    {COLL_BARRIER, ALWAYS, 8, ANY, "direct"},
    {COLL_BARRIER, ALWAYS, MANY, ANY, "dissemination"},
};

#define ROW_COUNT (sizeof(table) / sizeof(table[0]))

/* Bytes as the table means them; alltoallv's are not known to all ranks and count as many. */
static uint64_t shape_bytes(const struct coll_shape *shape)
{
    uint64_t count = shape->count;
    switch (shape->kind) {
    case COLL_BARRIER: return 0;
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BROADCAST: break;
    case COLL_ALLTOALL:
        if (shape->counts)
            return UINT64_MAX;
        count *= (uint64_t)shape->size;
        break;
    default:
        count = 0;
        for (int i = 0; i < shape->size; i++)
            count += schedule_block_count(shape, i);
        break;
    }
    return count * shape->elem_bytes;
}

static bool holds(enum condition condition, const struct coll_shape *shape)
{
    switch (condition) {
    case STACKED: return coll_layout_is_stacked(shape);
    case SAME_WIDTH: return !shape->wide_sums;
    case LONG_BLOCKS:
        return !shape->wide_sums && shape_bytes(shape) / (uint64_t)shape->size >= BLOCK_BYTES;
    case SERVED: return shape->server_count > 0;
    case SERVED_STACKED: return shape->server_count > 0 && coll_layout_is_stacked(shape);
    case CROWDED: return shape->crowded && shape->size > 2;
    case CROWDED_EVEN: return holds(CROWDED, shape) && holds(EVEN_HALVES, shape);
    case EVEN_HALVES: return !shape->wide_sums && (shape->size & (shape->size - 1)) == 0;
    default: return true;
    }
}

static bool is_floating(enum shoal_dtype dtype)
{
    return dtype == SHOAL_F64 || dtype == SHOAL_F32 || dtype == SHOAL_F16 || dtype == SHOAL_BF16 ||
           dtype == SHOAL_COMPLEX64 || dtype == SHOAL_COMPLEX128;
}

/* Whether the algorithm can do the shape and keeps the promise. */
static bool is_allowed(const struct coll_algorithm *algorithm, const struct coll_shape *shape,
                       const struct coll_choice *choice)
{
    if (algorithm->fits && !algorithm->fits(shape))
        return false;
    if (shape->server_count > 0 && !algorithm->takes_servers)
        return false;
    bool one_tree = algorithm->same_tree && algorithm->one_reduce;
    return !(choice->reproducible && is_floating(choice->dtype)) || one_tree;
}

/* The first row that matches and whose algorithm is allowed. Each kind's last one always is. */
static const struct row *find_row(const struct coll_shape *shape, const struct coll_choice *choice)
{
    uint64_t bytes = shape_bytes(shape);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &table[i];
        if (row->kind != shape->kind || shape->size > row->ranks_max || bytes > row->bytes_max)
            continue;
        if (holds(row->condition, shape) &&
            is_allowed(coll_find(row->kind, row->algorithm), shape, choice))
            return row;
    }
    BASE_ASSERT(!"a row for every shape");
    return NULL;
}

/* ---- forced -------------------------------------------------------------------------------- */

#define NAME_BYTES_MAX 64
#define NAMES_MAX      32

/* Names of the kind's algorithms, or, with COLL_KIND_COUNT, of all, without repeats. */
static size_t list_names(enum coll_kind kind, const char *names[NAMES_MAX])
{
    size_t count = 0;
    for (int i = 0; coll_algorithms()[i]; i++) {
        const struct coll_algorithm *algorithm = coll_algorithms()[i];
        bool listed = kind != COLL_KIND_COUNT && algorithm->kind != kind;
        for (size_t k = 0; k < count && !listed; k++)
            listed = strcmp(names[k], algorithm->name) == 0;
        if (!listed && count < NAMES_MAX)
            names[count++] = algorithm->name;
    }
    return count;
}

static enum shoal_status unknown_name(enum coll_kind kind, const char *name)
{
    const char *names[NAMES_MAX];
    size_t count = list_names(kind, names);
    char list[512] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = base_nearest(name, names, count);
    return base_error(
        SHOAL_ERR_OPTION, "no algorithm '%s'%s%s: there are %s%s%s%s", name,
        kind == COLL_KIND_COUNT ? "" : " for ", kind == COLL_KIND_COUNT ? "" : comm_kind_name(kind),
        list, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static bool parse_kind(const char *text, size_t bytes, enum coll_kind *out)
{
    for (int kind = 0; kind <= COLL_BARRIER; kind++) {
        const char *name = comm_kind_name((enum coll_kind)kind);
        if (strlen(name) == bytes && strncmp(name, text, bytes) == 0) {
            *out = (enum coll_kind)kind;
            return true;
        }
    }
    return false;
}

static enum shoal_status unknown_kind(const char *word)
{
    const char *names[COLL_BARRIER + 1];
    for (int kind = 0; kind <= COLL_BARRIER; kind++)
        names[kind] = comm_kind_name((enum coll_kind)kind);
    const char *nearest = base_nearest(word, names, COLL_BARRIER + 1);
    return base_error(SHOAL_ERR_OPTION, "no operation '%s' in the forced algorithm%s%s%s", word,
                      nearest ? "; did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'?" : "");
}

/* One word of the list, "name" or "kind:name". *out is NULL where it says nothing about `kind`. */
static enum shoal_status parse_forced(const char *word, enum coll_kind kind,
                                      const struct coll_algorithm **out)
{
    *out = NULL;
    const char *colon = strchr(word, ':');
    if (!colon) {
        const char *names[NAMES_MAX];
        size_t count = list_names(COLL_KIND_COUNT, names);
        bool known = strcmp(word, "auto") == 0;
        for (size_t i = 0; i < count && !known; i++)
            known = strcmp(names[i], word) == 0;
        *out = coll_find(kind, word);
        return known ? SHOAL_OK : unknown_name(COLL_KIND_COUNT, word);
    }
    enum coll_kind named;
    if (!parse_kind(word, (size_t)(colon - word), &named)) {
        char text[NAME_BYTES_MAX];
        snprintf(text, sizeof(text), "%.*s", (int)(colon - word), word);
        return unknown_kind(text);
    }
    const struct coll_algorithm *algorithm = coll_find(named, colon + 1);
    if (!algorithm && strcmp(colon + 1, "auto") != 0)
        return unknown_name(named, colon + 1);
    if (named == kind)
        *out = algorithm;
    return SHOAL_OK;
}

/* The last word of the comma-separated text that says something about the kind. */
static enum shoal_status choose_forced(const char *text, enum coll_kind kind,
                                       const struct coll_algorithm **out)
{
    *out = NULL;
    while (*text) {
        size_t bytes = strcspn(text, ",");
        char word[NAME_BYTES_MAX];
        if (bytes >= sizeof(word))
            return base_error(SHOAL_ERR_OPTION, "forced algorithm '%.80s' is too long", text);
        memcpy(word, text, bytes);
        word[bytes] = '\0';
        const struct coll_algorithm *algorithm;
        TRY(parse_forced(word, kind, &algorithm));
        if (algorithm)
            *out = algorithm;
        text += bytes + (text[bytes] == ',');
    }
    return SHOAL_OK;
}

/* ---- the choice ---------------------------------------------------------------------------- */

struct decision {
    const struct coll_algorithm *algorithm;
    const struct coll_algorithm *forced; /* NULL: nothing is */
    const struct row *row;               /* NULL: forced */
};

static enum shoal_status decide(const struct coll_shape *shape, const struct coll_choice *choice,
                                struct decision *out)
{
    struct decision decision = {0};
    BASE_ASSERT(shape->kind <= COLL_BARRIER);
    if (choice->forced)
        TRY(choose_forced(choice->forced, shape->kind, &decision.forced));
    if (decision.forced && is_allowed(decision.forced, shape, choice)) {
        decision.algorithm = decision.forced;
    } else {
        decision.row = find_row(shape, choice);
        decision.algorithm = coll_find(shape->kind, decision.row->algorithm);
    }
    *out = decision;
    return SHOAL_OK;
}

enum shoal_status coll_choose(const struct coll_shape *shape, const struct coll_choice *choice,
                              const struct coll_algorithm **out)
{
    struct decision decision;
    TRY(decide(shape, choice, &decision));
    *out = decision.algorithm;
    return SHOAL_OK;
}

/* "allreduce, several ranks on a host, up to 32 ranks, up to 8 KiB" */
static void print_row(const struct row *row, char *text, size_t text_bytes)
{
    char ranks[32] = "", bytes[32] = "";
    if (row->ranks_max != MANY)
        snprintf(ranks, sizeof(ranks), ", up to %d ranks", row->ranks_max);
    if (row->bytes_max != ANY)
        snprintf(bytes, sizeof(bytes), ", up to %llu KiB",
                 (unsigned long long)(row->bytes_max / KIB));
    snprintf(text, text_bytes, "%s%s%s%s", comm_kind_name(row->kind),
             row->condition == STACKED          ? ", several ranks on a host"
             : row->condition == SERVED         ? ", with servers"
             : row->condition == SERVED_STACKED ? ", with servers, several ranks on a host"
             : row->condition == CROWDED        ? ", hosts share too few cores"
                                                : "",
             ranks, *bytes || row->kind == COLL_BARRIER ? bytes : ", any size");
}

enum shoal_status coll_explain(const struct coll_shape *shape, const struct coll_choice *choice,
                               char *text, size_t text_bytes)
{
    struct decision decision;
    TRY(decide(shape, choice, &decision));
    char row[128] = "", refused[96] = "";
    if (decision.row)
        print_row(decision.row, row, sizeof(row));
    if (decision.forced && decision.forced != decision.algorithm)
        snprintf(refused, sizeof(refused), "%s cannot do this; ", decision.forced->name);
    if (decision.forced == decision.algorithm)
        snprintf(text, text_bytes, "forced");
    else
        snprintf(text, text_bytes, "%sfrom the table: %s", refused, row);
    return SHOAL_OK;
}

/* The longest message of halving and doubling is half the buffer among however many ranks; all
 * other large ones are a rank's share. */
static bool halves(const struct coll_shape *shape)
{
    const struct coll_choice plain = {.dtype = SHOAL_U8};
    return strcmp(find_row(shape, &plain)->algorithm, "halving_doubling") == 0;
}

/* A sixteenth of a shard, so that a pipeline of them loses little at its ends, but not so short
 * that the cost per message shows, nor longer than what stays in a core's cache. Of halving and
 * doubling a sixty-fourth of its longest message: it would be thousands of short ones. A group of
 * one has no messages to cut. Long messages are half a share, if not too many meet at a port. */
uint64_t coll_segment_count(const struct coll_shape *shape)
{
    uint64_t bytes = shape_bytes(shape), segment_bytes = SEGMENT_BYTES_MIN;
    bool is_long = shape->long_messages && shape->host_count <= LONG_HOSTS_MAX;
    uint64_t segments = is_long ? LONG_SEGMENTS : SEGMENTS;
    uint64_t wanted = halves(shape) ? bytes / 128 : bytes / (uint64_t)shape->size / segments;
    if (shape->size == 1)
        segment_bytes = INT64_MAX;
    while (segment_bytes < wanted && segment_bytes < SEGMENT_BYTES_MAX)
        segment_bytes *= 2;
    uint64_t count = segment_bytes / (shape->elem_bytes ? shape->elem_bytes : 1);
    return count ? count : 1;
}
