/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c: loops over the pieces of a span. */
#include "coll/segments.h"

uint64_t coll_segments_in(uint64_t count, uint64_t segment_count)
{
    return count / segment_count + (count % segment_count != 0);
}

struct schedule_span coll_segment_of(struct schedule_span span, uint64_t segment,
                                     uint64_t segment_count)
{
    uint64_t begin = segment * segment_count;
    if (begin >= span.count)
        return span_of(span.buffer, span.offset, 0);
    uint64_t left = span.count - begin;
    return span_of(span.buffer, span.offset + begin, left < segment_count ? left : segment_count);
}

struct schedule_span coll_span_within(struct schedule_span span, uint64_t offset, uint64_t count)
{
    return span_of(span.buffer, span.offset + offset, count);
}

void coll_segments_send(struct schedule_builder *builder, int peer, struct schedule_span from,
                        uint64_t segment_count)
{
    uint64_t segments = coll_segments_in(from.count, segment_count);
    for (uint64_t segment = 0; segment < segments; segment++)
        schedule_send(builder, peer, coll_segment_of(from, segment, segment_count));
}

void coll_segments_recv(struct schedule_builder *builder, int peer, struct schedule_span to,
                        uint64_t segment_count)
{
    uint64_t segments = coll_segments_in(to.count, segment_count);
    for (uint64_t segment = 0; segment < segments; segment++)
        schedule_recv(builder, peer, coll_segment_of(to, segment, segment_count));
}

void coll_segments_reduce(struct schedule_builder *builder, struct schedule_span to,
                          struct schedule_span left, struct schedule_span right,
                          uint64_t segment_count, bool final)
{
    left.count = right.count = to.count;
    uint64_t segments = coll_segments_in(to.count, segment_count);
    for (uint64_t segment = 0; segment < segments; segment++) {
        struct schedule_span sources[2] = {coll_segment_of(left, segment, segment_count),
                                           coll_segment_of(right, segment, segment_count)};
        schedule_reduce(builder, coll_segment_of(to, segment, segment_count), sources, 2, final);
    }
}
