/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: one file for the parts of an upload; see place.h. */
#include "s3/place.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/memory.h"
#include "s3/contents.h"
#include "s3/store.h"
#include "s3/store_state.h"

struct s3_place {
    struct s3_place *next;
    int64_t upload, bucket, content, stride;
    int fd;        /* -1: the place has no file */
    int in_flight; /* bodies on their way into it */
    bool has_row;  /* a part was committed in it, so the file belongs to the index */
    bool is_closed, is_forgotten;
    unsigned char taken[S3_PART_NUMBER_MAX / 8 + 1];
};

static struct s3_place **find(struct s3_places *places, int64_t upload)
{
    struct s3_place **at = &places->first;
    while (*at != NULL && ((*at)->upload != upload || (*at)->is_forgotten))
        at = &(*at)->next;
    return at;
}

static void place_free(struct s3_places *places, struct s3_place *place)
{
    struct s3_place **at = &places->first;
    while (*at != place)
        at = &(*at)->next;
    *at = place->next;
    places->count--;
    if (place->fd >= 0)
        close(place->fd);
    base_free(place);
}

static enum s3_code place_make(struct s3_places *places, int64_t upload, struct s3_place **out)
{
    struct s3_place *place;
    S3_TRY(s3_from_status(BASE_NEW(&place, "the place of an upload")));
    place->upload = upload;
    place->fd = -1;
    place->next = places->first;
    places->first = place;
    places->count++;
    *out = place;
    return S3_OK;
}

/* The stride is the size of whichever part comes first: of those sent at once, all but the last of
 * the object have it. One too small to be any but the last says nothing. */
static bool makes_sense(const struct s3_places *places, const struct s3_upload_row *upload,
                        int64_t bytes)
{
    bool had_one = upload->content != 0; /* before a restart */
    return !had_one && bytes >= S3_PART_BYTES_MIN && places->count < S3_PLACES_MAX;
}

static enum s3_code take_locked(struct s3_store *store, const struct s3_upload_row *upload,
                                int number, int64_t bytes, struct s3_slot *out)
{
    struct s3_place *place = *find(&store->places, upload->id);
    if (place == NULL) {
        if (!makes_sense(&store->places, upload, bytes))
            return S3_OK;
        S3_TRY(place_make(&store->places, upload->id, &place));
        place->bucket = upload->bucket;
        enum s3_code code = s3_content_create(store, &place->content, &place->fd);
        if (code != S3_OK) {
            place_free(&store->places, place);
            return code;
        }
        place->stride = bytes;
    }
    unsigned char bit = (unsigned char)(1u << number % 8);
    if (place->fd < 0 || place->is_closed || bytes < 0 || bytes > place->stride ||
        (place->taken[number / 8] & bit) != 0)
        return S3_OK;
    int fd = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return s3_error_errno(errno, "no descriptor for a part");
    place->taken[number / 8] |= bit;
    place->in_flight++;
    *out = (struct s3_slot){.place = place,
                            .content = place->content,
                            .stride = place->stride,
                            .start = (number - 1) * place->stride,
                            .number = number,
                            .fd = fd};
    return S3_OK;
}

enum s3_code s3_place_take(struct s3_store *store, const struct s3_upload_row *upload, int number,
                           int64_t bytes, struct s3_slot *out)
{
    *out = (struct s3_slot){.fd = -1};
    pthread_mutex_lock(&store->places.lock);
    enum s3_code code = take_locked(store, upload, number, bytes, out);
    pthread_mutex_unlock(&store->places.lock);
    return code;
}

void s3_place_give(struct s3_store *store, struct s3_slot *slot, bool is_kept)
{
    struct s3_place *place = slot->place;
    if (place == NULL)
        return;
    pthread_mutex_lock(&store->places.lock);
    if (is_kept)
        place->has_row = true;
    else
        place->taken[slot->number / 8] &= (unsigned char)~(1u << slot->number % 8);
    place->in_flight--;
    if (place->is_forgotten && place->in_flight == 0)
        place_free(&store->places, place);
    pthread_mutex_unlock(&store->places.lock);
    slot->place = NULL;
}

enum s3_code s3_place_close(struct s3_store *store, int64_t upload, bool *is_quiet)
{
    pthread_mutex_lock(&store->places.lock);
    struct s3_place *place = *find(&store->places, upload);
    enum s3_code code = S3_OK;
    if (place == NULL)
        code = place_make(&store->places, upload, &place);
    if (code == S3_OK && place->is_closed)
        code = s3_error(S3_OPERATION_ABORTED, NULL);
    if (code == S3_OK) {
        place->is_closed = true;
        *is_quiet = place->in_flight == 0;
    }
    pthread_mutex_unlock(&store->places.lock);
    return code;
}

void s3_place_open(struct s3_store *store, int64_t upload)
{
    pthread_mutex_lock(&store->places.lock);
    struct s3_place *place = *find(&store->places, upload);
    if (place != NULL && place->fd < 0)
        place_free(&store->places, place);
    else if (place != NULL)
        place->is_closed = false;
    pthread_mutex_unlock(&store->places.lock);
}

static void forget(struct s3_store *store, struct s3_place *place)
{
    place->is_forgotten = true;
    if (place->fd >= 0 && !place->has_row)
        s3_content_unlink(store, place->content);
    if (place->in_flight == 0)
        place_free(&store->places, place);
}

void s3_place_forget(struct s3_store *store, int64_t upload)
{
    pthread_mutex_lock(&store->places.lock);
    struct s3_place *place = *find(&store->places, upload);
    if (place != NULL)
        forget(store, place);
    pthread_mutex_unlock(&store->places.lock);
}

void s3_places_forget(struct s3_store *store, int64_t bucket)
{
    pthread_mutex_lock(&store->places.lock);
    for (struct s3_place *place = store->places.first, *next; place != NULL; place = next) {
        next = place->next;
        if (place->bucket == bucket && !place->is_forgotten)
            forget(store, place);
    }
    pthread_mutex_unlock(&store->places.lock);
}

void s3_places_release(struct s3_places *places)
{
    while (places->first != NULL)
        place_free(places, places->first);
}
