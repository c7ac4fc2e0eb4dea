/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h: a span in pieces of segment_count elements, so that what is done with one piece
 * overlaps with the next one's way through the network.
 */
#ifndef SHOAL_COLL_SEGMENTS_H
#define SHOAL_COLL_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"

/* Segments in a span of `count` elements. */
uint64_t coll_segments_in(uint64_t count, uint64_t segment_count);
/* Segment number `segment` of a span; its count is 0 behind the end. */
struct schedule_span coll_segment_of(struct schedule_span span, uint64_t segment,
                                     uint64_t segment_count);
/* `count` elements from `offset` on within a span. */
struct schedule_span coll_span_within(struct schedule_span span, uint64_t offset, uint64_t count);

void coll_segments_send(struct schedule_builder *builder, int peer, struct schedule_span from,
                        uint64_t segment_count);
void coll_segments_recv(struct schedule_builder *builder, int peer, struct schedule_span to,
                        uint64_t segment_count);
/* to = left op right; the spans of the operands have at least to's length. */
void coll_segments_reduce(struct schedule_builder *builder, struct schedule_span to,
                          struct schedule_span left, struct schedule_span right,
                          uint64_t segment_count, bool final);

#endif
