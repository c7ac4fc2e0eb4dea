/* SPDX-License-Identifier: Apache-2.0 */
/* coll_case.h: shapes and schedules of all ranks of one operation, for tests of coll/. */
#ifndef SHOAL_TESTS_COLL_CASE_H
#define SHOAL_TESTS_COLL_CASE_H

#include "coll/coll.h"

#define CASE_RANKS_MAX 64

enum case_hosts {
    HOSTS_ONE,       /* all ranks on one */
    HOSTS_EACH,      /* one rank each */
    HOSTS_PAIRS,     /* two ranks each; the last one may have one */
    HOSTS_UNEVEN,    /* 1, 2, 3, 4, … ranks */
    HOSTS_SCATTERED, /* rank i on host i mod 3 */
    HOSTS_LAYOUTS
};

enum case_in_place { PLACE_APART, PLACE_SAME, PLACE_MIXED, PLACE_COUNT };

struct coll_case {
    const struct coll_algorithm *algorithm;
    int size, root;
    uint64_t count, segment_count;
    enum case_hosts hosts;
    enum case_in_place in_place;
    bool is_v;       /* uneven counts with zeros, and displacements out of order and with gaps */
    bool is_half;    /* elements are 16-bit floats, else 4 bytes */
    bool has_shares; /* unequal ones of hosts, some of them none, for algorithms that follow them */
    int server_count; /* of `size`, the last ones */
};

/* The shapes and schedules that a case stands for. */
struct coll_group {
    struct coll_shape shapes[CASE_RANKS_MAX];
    struct schedule *schedules[CASE_RANKS_MAX];
    int host_of[CASE_RANKS_MAX];
    uint64_t counts[CASE_RANKS_MAX], displs[CASE_RANKS_MAX];
    uint32_t shares[CASE_RANKS_MAX];
    uint64_t table[4][CASE_RANKS_MAX][CASE_RANKS_MAX]; /* alltoallv's arrays, per rank */
};

/* Whether the kind has a v form; whether it has an in-place form. */
bool case_has_v(enum coll_kind kind);
bool case_has_in_place(enum coll_kind kind);
/* Fills the shapes; false where the algorithm doesn't fit them. */
bool case_shapes(const struct coll_case *one, struct coll_group *group);
/* Builds the schedules of all ranks; the text of an error is base_error_text(). */
enum shoal_status case_schedules(const struct coll_case *one, struct coll_group *group);
void case_release(const struct coll_case *one, struct coll_group *group);
/* Shapes, schedules, verify, release. *fits false: nothing was done. */
enum shoal_status case_verify(const struct coll_case *one, bool *fits, struct coll_report *report);
/* "allreduce ring, 5 ranks, …" for messages. */
const char *case_text(const struct coll_case *one);

#endif
