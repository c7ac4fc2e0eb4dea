/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digits.c: trains a small network on handwritten digits with many processes, in plain C.
 *
 *     shoal run -n 2 build/release/examples/digits digits.csv
 *     shoal run -n 2 build/release/examples/digits digits.csv bf16
 *
 * The file has one image per line: 64 numbers from 0 to 16 (8 by 8 pixels), then the digit. Every
 * rank reads it and takes its own share of each batch. The gradients are made in the memory of a
 * fuse, which averages them over the ranks: each is added as soon as the last image of the batch is
 * in it, so its way to the other ranks begins while the rest is still computed. The second argument
 * says as what they travel: none (as they are), bf16, f16 or int8.
 *
 * The network: 64 pixels, one hidden layer of 128, 10 scores. At the end the ranks compare the
 * bits of their parameters.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <shoal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PIXELS = 64,
    HIDDEN = 128,
    DIGITS = 10,
    PARAMETERS = HIDDEN * (PIXELS + 1) + DIGITS * (HIDDEN + 1),
    BATCH = 32, /* images per rank and step */
    EPOCHS = 40,
    TESTS = 360,
    IMAGES_MAX = 10000,
};

static const float learning_rate = 0.05f;
static const float momentum = 0.9f;
static const float accuracy_wanted = 0.95f;

struct image {
    float pixels[PIXELS];
    int digit;
};

/* The four arrays of the network, in the order in which the forward pass needs them. */
enum { WEIGHT_1, OFFSET_1, WEIGHT_2, OFFSET_2, TENSORS };

static const uint64_t counts[TENSORS] = {HIDDEN * PIXELS, HIDDEN, DIGITS *HIDDEN, DIGITS};
static const char *const names[TENSORS] = {"hidden", "hidden_offset", "output", "output_offset"};

/* Parameters, or their gradients. */
struct layers {
    float *hidden;        /* [HIDDEN][PIXELS] */
    float *hidden_offset; /* [HIDDEN] */
    float *output;        /* [DIGITS][HIDDEN] */
    float *output_offset; /* [DIGITS] */
};

static shoal_group_t group;
static shoal_fuse_t fuse;

static void check(enum shoal_status status)
{
    if (status == SHOAL_OK)
        return;
    fprintf(stderr, "digits: %s: %s\n", shoal_status_name(status), shoal_last_error(group));
    exit(1);
}

static void fail(const char *text, const char *name)
{
    fprintf(stderr, "digits: %s %s\n", text, name);
    exit(1);
}

/* Parameters stand in one array. */
static struct layers layers_of(float *array)
{
    struct layers layers;
    layers.hidden = array;
    layers.hidden_offset = layers.hidden + HIDDEN * PIXELS;
    layers.output = layers.hidden_offset + HIDDEN;
    layers.output_offset = layers.output + DIGITS * HIDDEN;
    return layers;
}

static float *gradient_of(int tensor)
{
    void *home;
    check(shoal_fuse_home(fuse, tensor, &home));
    return home;
}

/* Gradients are where the fuse has them; asked for in each step, because they move after the first.
 */
static struct layers gradient_layers(void)
{
    struct layers layers;
    layers.hidden = gradient_of(WEIGHT_1);
    layers.hidden_offset = gradient_of(OFFSET_1);
    layers.output = gradient_of(WEIGHT_2);
    layers.output_offset = gradient_of(OFFSET_2);
    return layers;
}

/* The gradient is complete on this rank: it may leave. */
static void add(int tensor)
{
    check(shoal_fuse_add(fuse, tensor, NULL, NULL, counts[tensor]));
}

/* The same numbers on every rank: a linear congruential generator with 32 bits of 64 used. */
static uint32_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static void shuffle(int *order, int count, uint64_t *state)
{
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(random_next(state) % (uint32_t)(i + 1));
        int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static int parse_image(char *line, struct image *out)
{
    char *rest = line;
    for (int i = 0; i <= PIXELS; i++) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || (*end != ',' && i < PIXELS))
            return 0;
        if (i < PIXELS)
            out->pixels[i] = (float)value / 16;
        else
            out->digit = (int)value;
        rest = end + 1;
    }
    return out->digit >= 0 && out->digit < DIGITS;
}

static int read_images(const char *path, struct image *images)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("cannot open", path);
    char line[4096];
    int count = 0;
    while (count < IMAGES_MAX && fgets(line, sizeof line, file) != NULL) {
        if (!parse_image(line, &images[count])) {
            fprintf(stderr, "digits: %s: line %d is not 64 pixels and a digit\n", path, count + 1);
            exit(1);
        }
        count++;
    }
    fclose(file);
    if (count <= TESTS + BATCH * shoal_group_size(group))
        fail("too few images in", path);
    return count;
}

static void start_parameters(float *parameters)
{
    uint64_t state = 1;
    struct layers layers = layers_of(parameters);
    for (int i = 0; i < PARAMETERS; i++) {
        float width = parameters + i < layers.output ? PIXELS : HIDDEN;
        float uniform = (float)random_next(&state) / 4294967296.0f - 0.5f;
        parameters[i] = uniform * 2 * sqrtf(3 / width);
    }
    memset(layers.hidden_offset, 0, HIDDEN * sizeof(float));
    memset(layers.output_offset, 0, DIGITS * sizeof(float));
}

static float dot(const float *a, const float *b, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void forward(const struct layers *layers, const float *pixels, float *hidden, float *scores)
{
    for (int i = 0; i < HIDDEN; i++) {
        float value = dot(layers->hidden + i * PIXELS, pixels, PIXELS) + layers->hidden_offset[i];
        hidden[i] = value > 0 ? value : 0;
    }
    for (int i = 0; i < DIGITS; i++)
        scores[i] = dot(layers->output + i * HIDDEN, hidden, HIDDEN) + layers->output_offset[i];
}

/* Scores become probabilities minus the truth, which is the gradient; returns the loss. */
static float score_gradient(float *scores, int digit)
{
    float highest = scores[0];
    for (int i = 1; i < DIGITS; i++)
        highest = scores[i] > highest ? scores[i] : highest;
    float sum = 0;
    for (int i = 0; i < DIGITS; i++)
        sum += scores[i] = expf(scores[i] - highest);
    for (int i = 0; i < DIGITS; i++)
        scores[i] /= sum;
    float loss = -logf(scores[digit] + 1e-12f);
    scores[digit] -= 1;
    return loss;
}

static void backward_output(const struct layers *layers, const struct layers *gradient,
                            const float *scores, const float *hidden, float *back)
{
    for (int i = 0; i < DIGITS; i++) {
        for (int j = 0; j < HIDDEN; j++) {
            gradient->output[i * HIDDEN + j] += scores[i] * hidden[j];
            back[j] += scores[i] * layers->output[i * HIDDEN + j];
        }
        gradient->output_offset[i] += scores[i];
    }
}

static void backward_hidden(const struct layers *gradient, const float *pixels, const float *hidden,
                            const float *back)
{
    for (int j = 0; j < HIDDEN; j++) {
        if (hidden[j] <= 0)
            continue;
        for (int k = 0; k < PIXELS; k++)
            gradient->hidden[j * PIXELS + k] += back[j] * pixels[k];
        gradient->hidden_offset[j] += back[j];
    }
}

/* Adds the gradient of one image; returns its loss. last: of the batch. */
static float backward(const struct layers *layers, const struct layers *gradient,
                      const struct image *image, int last)
{
    float hidden[HIDDEN], scores[DIGITS], back[HIDDEN] = {0};
    forward(layers, image->pixels, hidden, scores);
    float loss = score_gradient(scores, image->digit);
    backward_output(layers, gradient, scores, hidden, back);
    if (last) {
        add(OFFSET_2);
        add(WEIGHT_2);
    }
    backward_hidden(gradient, image->pixels, hidden, back);
    if (last) {
        add(OFFSET_1);
        add(WEIGHT_1);
    }
    return loss;
}

static void step(float *parameters, float *velocities)
{
    float *parameter = parameters, *velocity = velocities;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        const float *gradient = gradient_of(tensor);
        for (uint64_t i = 0; i < counts[tensor]; i++, parameter++, velocity++) {
            *velocity = momentum * *velocity + gradient[i] / BATCH;
            *parameter -= learning_rate * *velocity;
        }
    }
}

static void clear_gradients(void)
{
    for (int tensor = 0; tensor < TENSORS; tensor++)
        memset(gradient_of(tensor), 0, counts[tensor] * sizeof(float));
}

/* One pass over the images in `order`; returns the mean loss of all ranks. */
static float train_epoch(const struct image *images, const int *order, int count, float *parameters,
                         float *velocities)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group), steps = 0;
    struct layers layers = layers_of(parameters);
    double loss = 0;
    for (int first = 0; first + BATCH * size <= count; first += BATCH * size, steps++) {
        struct layers gradient = gradient_layers();
        clear_gradients();
        for (int i = 0; i < BATCH; i++)
            loss += backward(&layers, &gradient, &images[order[first + rank * BATCH + i]],
                             i == BATCH - 1);
        check(shoal_fuse_finish(fuse));
        step(parameters, velocities);
    }
    loss /= steps * BATCH;
    check(shoal_allreduce(&loss, &loss, 1, SHOAL_F64, SHOAL_AVG, group, NULL));
    return (float)loss;
}

static float test(const struct image *images, int count, float *parameters)
{
    struct layers layers = layers_of(parameters);
    int64_t right = 0;
    for (int i = shoal_group_rank(group); i < count; i += shoal_group_size(group)) {
        float hidden[HIDDEN], scores[DIGITS];
        forward(&layers, images[i].pixels, hidden, scores);
        int best = 0;
        for (int j = 1; j < DIGITS; j++)
            best = scores[j] > scores[best] ? j : best;
        right += best == images[i].digit;
    }
    check(shoal_allreduce(&right, &right, 1, SHOAL_I64, SHOAL_SUM, group, NULL));
    return (float)right / (float)count;
}

/* 1 if every rank holds the same bits: each gathers the checksum (FNV-1a) of all. */
static int same_on_all_ranks(const float *parameters)
{
    uint64_t checksum = 14695981039346656037u;
    const unsigned char *bytes = (const unsigned char *)parameters;
    for (size_t i = 0; i < PARAMETERS * sizeof(float); i++)
        checksum = (checksum ^ bytes[i]) * 1099511628211u;
    int size = shoal_group_size(group), same = 1;
    uint64_t *all = calloc((size_t)size, sizeof *all);
    if (all == NULL)
        fail("out of", "memory");
    check(shoal_allgather(&checksum, all, 1, SHOAL_U64, group, NULL));
    for (int i = 0; i < size; i++)
        same = same && all[i] == checksum;
    free(all);
    return same;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The images in an order that all ranks share; the first TESTS are kept for testing. */
static struct image *load(const char *path, int *count)
{
    struct image *read = calloc(IMAGES_MAX, sizeof *read);
    struct image *images = calloc(IMAGES_MAX, sizeof *images);
    int *order = calloc(IMAGES_MAX, sizeof *order);
    if (read == NULL || images == NULL || order == NULL)
        fail("out of", "memory");
    *count = read_images(path, read);
    for (int i = 0; i < *count; i++)
        order[i] = i;
    uint64_t state = 7;
    shuffle(order, *count, &state);
    for (int i = 0; i < *count; i++)
        images[i] = read[order[i]];
    free(read);
    free(order);
    return images;
}

static float run(const struct image *images, int count, float *parameters)
{
    static float velocities[PARAMETERS];
    static int order[IMAGES_MAX];
    uint64_t state = 11;
    int trained = count - TESTS;
    double started = seconds_now();
    for (int i = 0; i < trained; i++)
        order[i] = TESTS + i;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        shuffle(order, trained, &state);
        float loss = train_epoch(images, order, trained, parameters, velocities);
        if (shoal_group_rank(group) == 0 && epoch % 5 == 0) {
            printf("epoch %2d/%d  loss %.4f\n", epoch, EPOCHS, (double)loss);
            fflush(stdout);
        }
    }
    double seconds = seconds_now() - started;
    if (shoal_group_rank(group) == 0)
        printf("%.0f samples/s on %d ranks\n", EPOCHS * trained / seconds, shoal_group_size(group));
    return test(images, TESTS, parameters);
}

static enum shoal_compression compression_of(const char *name)
{
    static const char *const known[] = {"none", "bf16", "f16", "int8"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return (enum shoal_compression)i;
    fail("there is no compression", name);
    return SHOAL_COMPRESSION_NONE;
}

static void make_fuse(enum shoal_compression compression)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.tensor_names = names;
    options.compression = compression;
    check(shoal_fuse_create(group, &options, &fuse));
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: shoal run -n N %s digits.csv [none|bf16|f16|int8]\n", argv[0]);
        return 2;
    }
    enum shoal_compression compression = compression_of(argc > 2 ? argv[2] : "none");
    check(shoal_group_create(NULL, &group));
    int count, rank = shoal_group_rank(group);
    struct image *images = load(argv[1], &count);
    static float parameters[PARAMETERS];
    start_parameters(parameters);
    make_fuse(compression);

    float accuracy = run(images, count, parameters);
    int same = same_on_all_ranks(parameters);
    if (rank == 0)
        printf("accuracy %.4f, parameters %s on all %d ranks\n", (double)accuracy,
               same ? "the same bits" : "DIFFERENT", shoal_group_size(group));
    check(shoal_fuse_free(fuse));
    check(shoal_group_free(group));
    free(images);
    if (accuracy < accuracy_wanted)
        fprintf(stderr, "digits: the accuracy is below %.2f\n", (double)accuracy_wanted);
    return !same || accuracy < accuracy_wanted;
}
