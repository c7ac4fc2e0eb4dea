/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_lane.h: the loops of one lane type; vector.h includes it once for each. Given:
 *   LANE        its name: f32, u8 …
 *   LANE_BITS   of one element in memory
 *   LANE_FLOAT, LANE_UNSIGNED or LANE_SIGNED   defined: which operations it has
 *   LANE_HALF   defined: a 16-bit float, computed in f32
 *   LANE_PAIRED defined: bf16, two vectors of which are taken apart without shuffles
 * All are undefined again at the end. The shape of the loops is explained in vector.h.
 */
#define GLUE_NOW(a, b) a##b
#define GLUE(a, b)     GLUE_NOW(a, b)
#define NAME(what)     GLUE(what##_, LANE)

/* ACC: what sums are kept in. RAW: the same elements as they lie in memory, as unsigned integers.
 */
#ifdef LANE_HALF
#define ACC         vf32
#define MASK        vi32
#define RAW         vhalf
#define SPAN        ((size_t)VECTOR_BYTES / 2) /* bytes in memory of one ACC */
#define MEMORY(how) GLUE(half_, how)
#define WIDEN       GLUE(widen_, LANE)
#define NARROW      GLUE(narrow_, LANE)
#define QUIET       GLUE(quiet_, LANE)
#else
#define ACC         GLUE(v, LANE)
#define MASK        GLUE(vi, LANE_BITS)
#define RAW         GLUE(vu, LANE_BITS)
#define SPAN        ((size_t)VECTOR_BYTES)
#define MEMORY(how) GLUE(full_, how)
#define WIDEN       (ACC)
#define NARROW      (vfull)
#define QUIET       (ACC)
#endif
#define ELEMENT       GLUE(GLUE(uint, LANE_BITS), _t)
#define ELEMENT_BYTES sizeof(ELEMENT)

/* ---- combine: a op b on vectors ---- */

typedef ACC NAME(combine)(ACC a, ACC b);

INLINE ACC NAME(select)(MASK which, ACC yes, ACC no)
{
    return (ACC)((which & (MASK)yes) | (~which & (MASK)no));
}

#ifdef LANE_FLOAT
static inline ACC NAME(min)(ACC a, ACC b)
{
    return QUIET(NAME(select)((MASK)(b < a) | (MASK)(b != b), b, a));
}
static inline ACC NAME(max)(ACC a, ACC b)
{
    return QUIET(NAME(select)((MASK)(b > a) | (MASK)(b != b), b, a));
}
#else
static inline ACC NAME(min)(ACC a, ACC b)
{
    return NAME(select)((MASK)(b < a), b, a);
}
static inline ACC NAME(max)(ACC a, ACC b)
{
    return NAME(select)((MASK)(b > a), b, a);
}
#endif

#ifndef LANE_SIGNED
static inline ACC NAME(sum)(ACC a, ACC b)
{
    return a + b;
}
static inline ACC NAME(prod)(ACC a, ACC b)
{
    return a * b;
}
#endif

#ifdef LANE_UNSIGNED
static inline ACC NAME(band)(ACC a, ACC b)
{
    return a & b;
}
static inline ACC NAME(bor)(ACC a, ACC b)
{
    return a | b;
}
static inline ACC NAME(bxor)(ACC a, ACC b)
{
    return a ^ b;
}
/* Comparisons give all ones for true, which is -1. */
static inline ACC NAME(land)(ACC a, ACC b)
{
    return -(ACC)((a != 0) & (b != 0));
}
static inline ACC NAME(lor)(ACC a, ACC b)
{
    return -(ACC)((a | b) != 0);
}
static inline ACC NAME(lxor)(ACC a, ACC b)
{
    return -(ACC)((a != 0) ^ (b != 0));
}
#endif

/* ---- steps ---- */

INLINE ACC NAME(load)(const char *from)
{
    return WIDEN(MEMORY(load)(from));
}

INLINE ACC NAME(finish)(ACC sum, uint32_t divisor)
{
#ifdef LANE_FLOAT
    if (divisor > 1) {
        __typeof__(sum[0]) by = (__typeof__(sum[0]))divisor;
        return sum / ((ACC){0} + by);
    }
#endif
    (void)divisor;
    return sum;
}

/* Two ACCs from 2 * SPAN bytes, and four back: pairs of vectors are what every machine can store
 * around the cache. Which element is in which ACC doesn't matter to a reduction, so bf16 goes by
 * even and odd ones, which costs no shuffle: they are the lower and upper halves of each 32 bits.
 */
#ifdef LANE_PAIRED
INLINE void NAME(load_two)(const char *from, ACC *a, ACC *b)
{
    vu32 both = (vu32)full_load(from);
    *a = (ACC)(both << 16);
    *b = (ACC)(both & 0xffff0000u);
}

INLINE vfull NAME(join_two)(ACC a, ACC b)
{
    return (vfull)(NAME(round)(a) >> 16 | (NAME(round)(b) & 0xffff0000u));
}

INLINE void NAME(store_four)(char *to, const ACC from[4], bool stream)
{
    vfull a = NAME(join_two)(from[0], from[1]), b = NAME(join_two)(from[2], from[3]);
    if (stream) {
        full_stream_two(to, a, b);
    } else {
        full_store(to, a);
        full_store(to + 2 * SPAN, b);
    }
}
#else
INLINE void NAME(load_two)(const char *from, ACC *a, ACC *b)
{
    *a = NAME(load)(from);
    *b = NAME(load)(from + SPAN);
}

INLINE void NAME(store_four)(char *to, const ACC from[4], bool stream)
{
    for (int i = 0; i < 4; i += 2, to += 2 * SPAN) {
        if (stream) {
            MEMORY(stream_two)(to, NARROW(from[i]), NARROW(from[i + 1]));
        } else {
            MEMORY(store)(to, NARROW(from[i]));
            MEMORY(store)(to + SPAN, NARROW(from[i + 1]));
        }
    }
}
#endif

INLINE void NAME(step_four)(const struct kernel_pass *pass, size_t at, NAME(combine) * combine,
                            bool stream)
{
    const char *in = pass->inputs[0] + at;
    ACC a, b, c, d;
    if (pass->owns) {
        own_lines(pass->out + at, 4 * SPAN);
    }
    NAME(load_two)(in, &a, &b);
    NAME(load_two)(in + 2 * SPAN, &c, &d);
    for (int k = 1; k < pass->input_count; k++) {
        ACC w, x, y, z;
        in = pass->inputs[k] + at;
        NAME(load_two)(in, &w, &x);
        NAME(load_two)(in + 2 * SPAN, &y, &z);
        a = combine(a, w), b = combine(b, x);
        c = combine(c, y), d = combine(d, z);
    }
    a = NAME(finish)(a, pass->divisor), b = NAME(finish)(b, pass->divisor);
    c = NAME(finish)(c, pass->divisor), d = NAME(finish)(d, pass->divisor);
    const ACC results[4] = {a, b, c, d};
    NAME(store_four)(pass->out + at, results, stream && !pass->also);
    if (pass->also) {
        NAME(store_four)(pass->also + at, results, stream);
    }
}

INLINE void NAME(step_one)(const struct kernel_pass *pass, size_t at, NAME(combine) * combine)
{
    ACC a = NAME(load)(pass->inputs[0] + at);
    for (int k = 1; k < pass->input_count; k++) {
        a = combine(a, NAME(load)(pass->inputs[k] + at));
    }
    a = NAME(finish)(a, pass->divisor);
    MEMORY(store)(pass->out + at, NARROW(a));
    if (pass->also) {
        MEMORY(store)(pass->also + at, NARROW(a));
    }
}

/* `bytes` less than SPAN. */
INLINE void NAME(step_part)(const struct kernel_pass *pass, size_t at, size_t bytes,
                            NAME(combine) * combine)
{
    ACC a = WIDEN(MEMORY(load_part)(pass->inputs[0] + at, bytes));
    for (int k = 1; k < pass->input_count; k++) {
        a = combine(a, WIDEN(MEMORY(load_part)(pass->inputs[k] + at, bytes)));
    }
    a = NAME(finish)(a, pass->divisor);
    MEMORY(store_part)(pass->out + at, NARROW(a), bytes);
    if (pass->also) {
        MEMORY(store_part)(pass->also + at, NARROW(a), bytes);
    }
}

typedef void NAME(part)(const struct kernel_pass *pass, size_t at, size_t bytes);

/* Does what lies before the first vector of the output that can be stored around the cache, and
 * sets *at behind it; false if there is no such vector. */
INLINE bool NAME(begin_stream)(const struct kernel_pass *pass, size_t *at, NAME(combine) * combine,
                               NAME(part) * part)
{
    const char *streamed = pass->also ? pass->also : pass->out;
    size_t head_bytes = -(uintptr_t)(streamed + *at) % VECTOR_BYTES;
    if (!pass->stream || head_bytes % ELEMENT_BYTES != 0) {
        return false;
    }
    if (head_bytes >= SPAN) {
        NAME(step_one)(pass, *at, combine);
        *at += SPAN;
        head_bytes -= SPAN;
    }
    if (head_bytes > 0) {
        part(pass, *at, head_bytes);
        *at += head_bytes;
    }
    return true;
}

INLINE void NAME(run)(const struct kernel_pass *pass, NAME(combine) * combine, NAME(part) * part)
{
    size_t at = pass->begin;
    bool stream = NAME(begin_stream)(pass, &at, combine, part);
    for (; pass->end - at >= 4 * SPAN; at += 4 * SPAN) {
        NAME(step_four)(pass, at, combine, stream);
    }
    if (stream) {
        stream_end();
    }
    for (; pass->end - at >= SPAN; at += SPAN) {
        NAME(step_one)(pass, at, combine);
    }
    if (at < pass->end) {
        part(pass, at, pass->end - at);
    }
}

/* ---- entries of the table ---- */

#define DEFINE_REDUCE(OP)                                                                 \
    static __attribute__((noinline)) void NAME(part_##OP)(const struct kernel_pass *pass, \
                                                          size_t at, size_t bytes)        \
    {                                                                                     \
        NAME(step_part)(pass, at, bytes, NAME(OP));                                       \
    }                                                                                     \
    static void NAME(reduce_##OP)(const struct kernel_pass *pass)                         \
    {                                                                                     \
        NAME(run)(pass, NAME(OP), NAME(part_##OP));                                       \
    }
DEFINE_REDUCE(min)
DEFINE_REDUCE(max)
#ifndef LANE_SIGNED
DEFINE_REDUCE(sum)
DEFINE_REDUCE(prod)
#endif
#ifdef LANE_UNSIGNED
DEFINE_REDUCE(band)
DEFINE_REDUCE(bor)
DEFINE_REDUCE(bxor)
DEFINE_REDUCE(land)
DEFINE_REDUCE(lor)
DEFINE_REDUCE(lxor)
#endif
#undef DEFINE_REDUCE

#ifndef LANE_SIGNED
static void NAME(scale)(char *out, const char *in, const void *factor, size_t bytes)
{
    ELEMENT element;
    memcpy(&element, factor, sizeof element);
    ACC by = WIDEN((RAW){0} + element);
    size_t at = 0;
    for (; bytes - at >= SPAN; at += SPAN) {
        MEMORY(store)(out + at, NARROW(NAME(load)(in + at) * by));
    }
    if (at < bytes) {
        ACC value = WIDEN(MEMORY(load_part)(in + at, bytes - at));
        MEMORY(store_part)(out + at, NARROW(value * by), bytes - at);
    }
}
#endif

#ifdef LANE_HALF
static void NAME(to_f32)(float *out, const void *in, size_t count)
{
    size_t at = 0, bytes = count * ELEMENT_BYTES;
    const char *from = in;
    char *to = (char *)out; /* twice as far along as `from` */
    for (; bytes - at >= SPAN; at += SPAN) {
        full_store(to + 2 * at, (vfull)NAME(load)(from + at));
    }
    if (at < bytes) {
        vf32 value = WIDEN(half_load_part(from + at, bytes - at));
        full_store_part(to + 2 * at, (vfull)value, 2 * (bytes - at));
    }
}

static void NAME(from_f32)(void *out, const float *in, size_t count)
{
    size_t at = 0, bytes = count * ELEMENT_BYTES;
    const char *from = (const char *)in; /* twice as far along as `to` */
    char *to = out;
    for (; bytes - at >= SPAN; at += SPAN) {
        half_store(to + at, NARROW(QUIET((vf32)full_load(from + 2 * at))));
    }
    if (at < bytes) {
        vf32 value = (vf32)full_load_part(from + 2 * at, 2 * (bytes - at));
        half_store_part(to + at, NARROW(QUIET(value)), bytes - at);
    }
}

static void NAME(compress)(void *out, const float *in, float *residual, size_t count)
{
    size_t at = 0, bytes = count * ELEMENT_BYTES;
    const char *from = (const char *)in; /* this one and `kept` twice as far along as `to` */
    char *to = out, *kept = (char *)residual;
    for (; bytes - at >= SPAN; at += SPAN) {
        vf32 value = (vf32)full_load(from + 2 * at) + (vf32)full_load(kept + 2 * at);
        vhalf rounded = NARROW(QUIET(value));
        half_store(to + at, rounded);
        full_store(kept + 2 * at, (vfull)lost_by_rounding(value, WIDEN(rounded)));
    }
    if (at < bytes) {
        size_t rest = bytes - at;
        vf32 value = (vf32)full_load_part(from + 2 * at, 2 * rest) +
                     (vf32)full_load_part(kept + 2 * at, 2 * rest);
        vhalf rounded = NARROW(QUIET(value));
        half_store_part(to + at, rounded, rest);
        full_store_part(kept + 2 * at, (vfull)lost_by_rounding(value, WIDEN(rounded)), 2 * rest);
    }
}
#endif

#undef GLUE_NOW
#undef GLUE
#undef NAME
#undef ACC
#undef MASK
#undef RAW
#undef SPAN
#undef MEMORY
#undef WIDEN
#undef NARROW
#undef QUIET
#undef ELEMENT
#undef ELEMENT_BYTES
#undef LANE
#undef LANE_BITS
#undef LANE_HALF
#undef LANE_PAIRED
#undef LANE_FLOAT
#undef LANE_UNSIGNED
#undef LANE_SIGNED
