/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_move.c: `shoal s3 cp`, `sync` and `rm`: files and objects from one side to the other.
 *
 * Trees are gone through in the order of their paths, both at once where they are compared; what is
 * to be done is collected, and a batch is done side by side before more is collected. A file that
 * fails is named and does not end the others. A download is written under another name and renamed
 * when its bytes are right.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3.h"
#include "s3/folder.h"

#define BATCH      256
#define NAME_BYTES (PATH_MAX + S3_BUCKET_NAME_MAX + 16)
#define TEMPORARY  ".shoal-%ld-%ld" /* process, number */

/* One end of what is moved: an object, or a file below a folder that is open. */
struct place {
    bool is_remote;
    const char *bucket; /* "" of files */
    const char *root;   /* the prefix; the folder, for messages */
    int folder_fd;      /* of files; AT_FDCWD: `path` is all of it */
};

struct item {
    enum { ITEM_COPY, ITEM_DELETE } what;
    char path[S3_KEY_BYTES_MAX + 1]; /* below the roots */
    struct s3_object known;          /* of the source */
};

struct mover {
    struct s3_session *session;
    struct place from, to;
    struct item *items;
    int64_t count;
};

/* ---- names --------------------------------------------------------------------------------------
 */

static const char *name_of(const struct place *place, const char *path, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s%s%s%s%s", place->is_remote ? "s3://" : "", place->bucket,
             place->is_remote ? "/" : "", place->root, path);
    return out;
}

static enum s3_code key_of(const struct place *place, const char *path,
                           char key[S3_KEY_BYTES_MAX + 1])
{
    if (snprintf(key, S3_KEY_BYTES_MAX + 1, "%s%s", place->root, path) > S3_KEY_BYTES_MAX)
        return s3_error(S3_KEY_TOO_LONG, NULL);
    return S3_OK;
}

/* By the end of its name: what browsers, and libraries that look at it, go by. */
static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html"},        {".css", "text/css"},          {".js", "text/javascript"},
        {".json", "application/json"}, {".txt", "text/plain"},        {".csv", "text/csv"},
        {".md", "text/markdown"},      {".py", "text/x-python"},      {".png", "image/png"},
        {".jpg", "image/jpeg"},        {".jpeg", "image/jpeg"},       {".gif", "image/gif"},
        {".svg", "image/svg+xml"},     {".pdf", "application/pdf"},   {".gz", "application/gzip"},
        {".tgz", "application/gzip"},  {".tar", "application/x-tar"}, {".zip", "application/zip"},
        {".xml", "application/xml"},   {".yaml", "application/yaml"}};
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t end = strlen(types[i][0]);
        if (bytes > end && strcmp(path + bytes - end, types[i][0]) == 0)
            return types[i][1];
    }
    return NULL;
}

/* ---- one file -----------------------------------------------------------------------------------
 */

/* The folder that a path below a place is in, opened, and the path's last part. */
static enum s3_code folder_open(const struct place *place, const char *path, bool makes,
                                int *folder, const char **name)
{
    bool is_directory;
    if (place->folder_fd != AT_FDCWD) {
        S3_TRY(s3_key_path_check(path, &is_directory));
        return s3_folder_of(place->folder_fd, path, makes, folder, name);
    }
    char parent[PATH_MAX];
    path = place->root;
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    snprintf(parent, sizeof(parent), "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
             slash != NULL ? path : ".");
    *folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *folder < 0 ? s3_error_errno(errno, "can't open the folder %s", parent) : S3_OK;
}

static enum s3_code upload_opened(struct mover *mover, int fd, const char *path, const char *key)
{
    struct stat about;
    struct s3_client_put put = {
        .bucket = mover->to.bucket, .key = key, .content_type = type_of(path)};
    if (fstat(fd, &about) != 0)
        return s3_error_errno(errno, "can't look at the file");
    if (!S_ISREG(about.st_mode))
        return s3_error(S3_INVALID_ARGUMENT, "it is no regular file");
    return s3_client_put(mover->session->client, &put, fd, 0, about.st_size, NULL);
}

static enum s3_code upload(struct mover *mover, const struct item *item)
{
    char file[NAME_BYTES], key[S3_KEY_BYTES_MAX + 1];
    S3_TRY(key_of(&mover->to, item->path, key));
    name_of(&mover->from, item->path, file);
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return s3_error_errno(errno, "can't open it");
    enum s3_code code = upload_opened(mover, fd, item->path, key);
    close(fd);
    return code;
}

/* With the object's time, by which a later sync knows that it is the same. */
static enum s3_code temporary_settle(int fd, int folder, const char *temporary, const char *name,
                                     int64_t modified_ms)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    if (modified_ms > 0)
        times[1] = (struct timespec){.tv_sec = modified_ms / 1000,
                                     .tv_nsec = modified_ms % 1000 * 1000000};
    if (futimens(fd, times) != 0 || renameat(folder, temporary, folder, name) != 0)
        return s3_error_errno(errno, "can't put the file in its place");
    return S3_OK;
}

static enum s3_code download_into(struct mover *mover, const struct item *item, int folder,
                                  const char *name)
{
    static atomic_long number;
    char temporary[64], key[S3_KEY_BYTES_MAX + 1];
    S3_TRY(key_of(&mover->from, item->path, key));
    snprintf(temporary, sizeof(temporary), TEMPORARY, (long)getpid(), atomic_fetch_add(&number, 1));
    int fd = openat(folder, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return s3_error_errno(errno, "can't make a file");
    enum s3_code code =
        s3_client_get(mover->session->client, mover->from.bucket, key, &item->known, fd);
    if (code == S3_OK)
        code = temporary_settle(fd, folder, temporary, name, item->known.modified_ms);
    close(fd);
    if (code != S3_OK) {
        char text[BASE_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", base_error_text());
        unlinkat(folder, temporary, 0);
        return s3_error(code, "%s", text);
    }
    return S3_OK;
}

static enum s3_code download(struct mover *mover, const struct item *item)
{
    int folder;
    const char *name;
    S3_TRY(folder_open(&mover->to, item->path, true, &folder, &name));
    enum s3_code code = *name != '\0' ? download_into(mover, item, folder, name) : S3_OK;
    close(folder);
    return code;
}

static enum s3_code copy(struct mover *mover, const struct item *item)
{
    char from[S3_KEY_BYTES_MAX + 1], to[S3_KEY_BYTES_MAX + 1];
    S3_TRY(key_of(&mover->from, item->path, from));
    S3_TRY(key_of(&mover->to, item->path, to));
    struct s3_client_copy wish = {mover->from.bucket, from, mover->to.bucket, to};
    return s3_client_copy(mover->session->client, &wish, item->known.bytes);
}

static enum s3_code file_delete(const struct place *place, const struct item *item)
{
    int folder;
    const char *name;
    S3_TRY(folder_open(place, item->path, false, &folder, &name));
    int failed = unlinkat(folder, name, 0) != 0 && errno != ENOENT ? errno : 0;
    close(folder);
    return failed != 0 ? s3_error_errno(failed, "can't remove it") : S3_OK;
}

static enum s3_code object_delete(struct mover *mover, const struct item *item)
{
    char key[S3_KEY_BYTES_MAX + 1];
    const char *keys[] = {key};
    S3_TRY(key_of(&mover->to, item->path, key));
    return s3_client_delete(mover->session->client, mover->to.bucket, keys, 1);
}

static const char *verb_of(const struct mover *mover, const struct item *item)
{
    if (item->what == ITEM_DELETE)
        return "delete";
    if (!mover->from.is_remote)
        return "upload";
    return mover->to.is_remote ? "copy" : "download";
}

static enum s3_code item_do(struct mover *mover, const struct item *item)
{
    if (mover->session->wish->is_dry)
        return S3_OK;
    if (item->what == ITEM_DELETE)
        return mover->to.is_remote ? object_delete(mover, item) : file_delete(&mover->to, item);
    if (!mover->from.is_remote)
        return upload(mover, item);
    return mover->to.is_remote ? copy(mover, item) : download(mover, item);
}

/* Only a cancel ends the others. */
static enum s3_code item_run(void *user, int64_t index)
{
    struct mover *mover = user;
    const struct item *item = &mover->items[index];
    struct s3_progress *progress = mover->session->progress;
    char from[NAME_BYTES], to[NAME_BYTES];
    bool is_copy = item->what == ITEM_COPY;
    const char *to_name = name_of(&mover->to, item->path, to);
    const char *from_name = is_copy ? name_of(&mover->from, item->path, from) : to_name;
    if (atomic_load(&s3_is_cancelled))
        return s3_error(S3_INTERNAL_ERROR, "cancelled");
    if (item_do(mover, item) == S3_OK)
        s3_progress_done(progress, verb_of(mover, item), from_name, is_copy ? to_name : NULL);
    else
        s3_progress_failed(progress, verb_of(mover, item), from_name, is_copy ? to_name : NULL);
    return S3_OK;
}

/* ---- batches
 * --------------------------------------------------------------------------------------
 */

static enum shoal_status status_of(enum s3_code code)
{
    return code == S3_OK ? SHOAL_OK : base_error(SHOAL_ERR_PEER_REFUSED, "%s", base_error_text());
}

/* Objects that are deleted together are one request. */
static enum s3_code objects_delete(struct mover *mover, int64_t count)
{
    char *keys[BATCH] = {NULL}, name[NAME_BYTES];
    enum s3_code code = S3_OK;
    for (int64_t i = 0; i < count && code == S3_OK; i++) {
        char key[S3_KEY_BYTES_MAX + 1];
        code = key_of(&mover->to, mover->items[i].path, key);
        if (code == S3_OK)
            code = s3_from_status(base_strdup(key, "a key", &keys[i]));
    }
    if (code == S3_OK && !mover->session->wish->is_dry)
        code = s3_client_delete(mover->session->client, mover->to.bucket, (const char *const *)keys,
                                (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        if (code == S3_OK)
            s3_progress_done(mover->session->progress, "delete",
                             name_of(&mover->to, mover->items[i].path, name), NULL);
        base_free(keys[i]);
    }
    return code;
}

static enum shoal_status batch_do(struct mover *mover)
{
    int64_t count = mover->count;
    bool only_deletes = mover->to.is_remote && count > 1;
    mover->count = 0;
    for (int64_t i = 0; i < count; i++)
        only_deletes = only_deletes && mover->items[i].what == ITEM_DELETE;
    if (count == 0)
        return SHOAL_OK;
    if (only_deletes)
        return status_of(objects_delete(mover, count));
    return status_of(s3_client_side_by_side(mover->session->client, count, item_run, mover));
}

static enum shoal_status item_add(struct mover *mover, int what, const struct s3_tree_entry *entry)
{
    if (!s3_wish_takes(mover->session->wish, entry->path))
        return SHOAL_OK;
    struct item *item = &mover->items[mover->count++];
    item->what = what;
    snprintf(item->path, sizeof(item->path), "%s", entry->path);
    item->known = (struct s3_object){
        .bytes = entry->bytes, .modified_ms = entry->modified_ms, .part_count = 1};
    snprintf(item->known.etag, sizeof(item->known.etag), "%s", entry->etag);
    s3_progress_plan(mover->session->progress, 1, what == ITEM_COPY ? entry->bytes : 0);
    return mover->count == BATCH ? batch_do(mover) : SHOAL_OK;
}

/* ---- trees
 * ------------------------------------------------------------------------------------------
 */

static enum shoal_status tree_open(struct mover *mover, const struct place *place,
                                   struct s3_tree **out)
{
    bool follows = place == &mover->from && !mover->session->wish->passes_links;
    if (!place->is_remote)
        return status_of(s3_tree_of_folder(place->root, follows, out));
    return status_of(s3_tree_of_bucket(mover->session->client, place->bucket, place->root, out));
}

static enum shoal_status tree_do(struct mover *mover, const struct place *place, int what)
{
    struct s3_tree *tree;
    const struct s3_tree_entry *entry;
    TRY(tree_open(mover, place, &tree));
    enum shoal_status status = SHOAL_OK;
    while (status == SHOAL_OK) {
        status = status_of(s3_tree_next(tree, &entry));
        if (status != SHOAL_OK || entry == NULL)
            break;
        status = item_add(mover, what, entry);
    }
    s3_tree_close(tree);
    return status == SHOAL_OK ? batch_do(mover) : status;
}

/* Times to the second, which is all that some services keep. */
static bool differs(const struct s3_wish *wish, const struct s3_tree_entry *from,
                    const struct s3_tree_entry *to)
{
    return from->bytes != to->bytes ||
           (!wish->sizes_only && from->modified_ms / 1000 > to->modified_ms / 1000);
}

/* One step of both trees: whichever path comes first. */
static enum shoal_status pair_do(struct mover *mover, struct s3_tree *trees[2],
                                 const struct s3_tree_entry *at[2])
{
    const struct s3_wish *wish = mover->session->wish;
    int order = at[0] == NULL ? 1 : at[1] == NULL ? -1 : strcmp(at[0]->path, at[1]->path);
    if (order < 0 || (order == 0 && differs(wish, at[0], at[1])))
        TRY(item_add(mover, ITEM_COPY, at[0]));
    if (order > 0 && wish->deletes)
        TRY(item_add(mover, ITEM_DELETE, at[1]));
    if (order <= 0)
        TRY(status_of(s3_tree_next(trees[0], &at[0])));
    if (order >= 0)
        TRY(status_of(s3_tree_next(trees[1], &at[1])));
    return SHOAL_OK;
}

static enum shoal_status trees_do(struct mover *mover, struct s3_tree *trees[2])
{
    const struct s3_tree_entry *at[2];
    TRY(status_of(s3_tree_next(trees[0], &at[0])));
    TRY(status_of(s3_tree_next(trees[1], &at[1])));
    while (at[0] != NULL || at[1] != NULL)
        TRY(pair_do(mover, trees, at));
    return batch_do(mover);
}

/* ---- sides
 * ------------------------------------------------------------------------------------------
 */

/* A root that paths can stand behind: it ends in '/' unless it is a whole bucket. */
static enum shoal_status root_of(const struct s3_side *side, char root[PATH_MAX])
{
    size_t bytes = strlen(side->path);
    bool is_open = bytes > 0 && side->path[bytes - 1] != '/';
    if (snprintf(root, PATH_MAX, "%s%s", side->path, is_open ? "/" : "") >= PATH_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "the path '%.100s…' is too long", side->path);
    if (!side->is_remote && bytes == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "a path is empty");
    return SHOAL_OK;
}

static enum shoal_status folder_make(struct place *place, bool makes)
{
    if (makes && mkdir(place->root, 0777) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the folder %s", place->root);
    place->folder_fd = open(place->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->folder_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open the folder %s", place->root);
    return SHOAL_OK;
}

static void place_set(struct place *place, const struct s3_side *side, const char *root)
{
    *place = (struct place){.is_remote = side->is_remote,
                            .bucket = side->is_remote ? side->bucket : "",
                            .root = root,
                            .folder_fd = AT_FDCWD};
}

static enum shoal_status sides_of(const struct s3_session *session, struct s3_side *from,
                                  struct s3_side *to)
{
    TRY(s3_side_of(session->wish->words[0], from));
    TRY(s3_side_of(session->wish->words[1], to));
    if (!from->is_remote && !to->is_remote)
        return base_error(SHOAL_ERR_ARGUMENT, "neither '%s' nor '%s' begins with s3://",
                          session->wish->words[0], session->wish->words[1]);
    return SHOAL_OK;
}

/* Both trees: what a source has, or what it has and the target lacks. */
static enum shoal_status compare_do(struct mover *mover)
{
    struct s3_tree *trees[2] = {NULL, NULL};
    enum shoal_status status = tree_open(mover, &mover->from, &trees[0]);
    if (status == SHOAL_OK)
        status = tree_open(mover, &mover->to, &trees[1]);
    if (status == SHOAL_OK)
        status = trees_do(mover, trees);
    s3_tree_close(trees[0]);
    s3_tree_close(trees[1]);
    return status;
}

static enum shoal_status folders_do(struct mover *mover, bool compares)
{
    char roots[2][PATH_MAX];
    struct s3_side from, to;
    TRY(sides_of(mover->session, &from, &to));
    if (from.is_stream || to.is_stream)
        return base_error(SHOAL_ERR_ARGUMENT, "- stands for one stream, not for many files");
    TRY(root_of(&from, roots[0]));
    TRY(root_of(&to, roots[1]));
    place_set(&mover->from, &from, roots[0]);
    place_set(&mover->to, &to, roots[1]);
    if (!to.is_remote)
        TRY(folder_make(&mover->to, !mover->session->wish->is_dry));
    enum shoal_status status =
        compares ? compare_do(mover) : tree_do(mover, &mover->from, ITEM_COPY);
    if (mover->to.folder_fd >= 0)
        close(mover->to.folder_fd);
    return status;
}

static enum shoal_status with_items(struct s3_session *session,
                                    enum shoal_status (*run)(struct mover *mover))
{
    struct mover mover = {.session = session};
    TRY(BASE_NEW_ARRAY(&mover.items, BATCH, "files to move"));
    enum shoal_status status = run(&mover);
    base_free(mover.items);
    return status;
}

/* ---- one
 * ------------------------------------------------------------------------------------------
 */

static enum shoal_status sink_write(void *user, const void *data, size_t bytes)
{
    const char *at = data;
    (void)user;
    while (bytes > 0) {
        ssize_t put = write(STDOUT_FILENO, at, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write to stdout");
        at += put;
        bytes -= (size_t)put;
    }
    return SHOAL_OK;
}

static enum shoal_status stream_do(struct mover *mover, const struct s3_side *from,
                                   const struct s3_side *to)
{
    struct s3_client *client = mover->session->client;
    const struct s3_side *remote = from->is_remote ? from : to;
    struct s3_client_put put = {
        .bucket = remote->bucket, .key = remote->path, .content_type = type_of(remote->path)};
    struct s3_sink sink = {.piece = sink_write};
    if (remote->path[0] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "s3://%s needs a key: s3://%s/KEY", remote->bucket,
                          remote->bucket);
    if (mover->session->wish->is_dry)
        return SHOAL_OK;
    if (from->is_stream)
        return status_of(s3_client_write(client, &put, STDIN_FILENO, NULL));
    return status_of(s3_client_read(client, remote->bucket, remote->path, 0, -1, &sink));
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* What the source is called, behind a target that is a folder, a prefix or a bucket. */
static enum shoal_status target_of(const struct s3_side *from, const struct s3_side *to,
                                   char target[PATH_MAX])
{
    size_t bytes = strlen(to->path);
    bool is_open = bytes == 0 || to->path[bytes - 1] == '/';
    bool is_inside = is_open || (!to->is_remote && is_folder(to->path));
    if (snprintf(target, PATH_MAX, "%s%s%s", to->path, is_inside && !is_open ? "/" : "",
                 is_inside ? last_part(from->path) : "") >= PATH_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "the path '%.100s…' is too long", to->path);
    return SHOAL_OK;
}

static enum shoal_status source_look(struct mover *mover, const struct s3_side *from,
                                     struct s3_object *out)
{
    struct stat about;
    if (from->path[0] == '\0' || last_part(from->path)[0] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is a folder: --recursive takes all of it",
                          mover->session->wish->words[0]);
    if (from->is_remote)
        return status_of(s3_client_head(mover->session->client, from->bucket, from->path, out));
    if (stat(from->path, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot find %s", from->path);
    if (S_ISDIR(about.st_mode))
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is a folder: --recursive takes all of it",
                          from->path);
    *out = (struct s3_object){.bytes = about.st_size};
    return SHOAL_OK;
}

/* The two names have no path in common, so each stands as its place's root, with nothing behind. */
static enum shoal_status one_do(struct mover *mover)
{
    struct s3_side from, to;
    char target[PATH_MAX];
    TRY(sides_of(mover->session, &from, &to));
    if (from.is_stream || to.is_stream)
        return stream_do(mover, &from, &to);
    struct item *item = &mover->items[0];
    *item = (struct item){.what = ITEM_COPY};
    TRY(source_look(mover, &from, &item->known));
    TRY(target_of(&from, &to, target));
    place_set(&mover->from, &from, from.path);
    place_set(&mover->to, &to, target);
    s3_progress_plan(mover->session->progress, 1, item->known.bytes);
    mover->count = 1;
    return batch_do(mover);
}

/* ---- the operations
 * -------------------------------------------------------------------------------
 */

static enum shoal_status cp_do(struct mover *mover)
{
    return mover->session->wish->is_recursive ? folders_do(mover, false) : one_do(mover);
}

static enum shoal_status sync_do(struct mover *mover)
{
    return folders_do(mover, true);
}

static enum shoal_status rm_do(struct mover *mover)
{
    struct s3_side side;
    char root[PATH_MAX];
    TRY(s3_side_of(mover->session->wish->words[0], &side));
    if (!side.is_remote)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' does not begin with s3://",
                          mover->session->wish->words[0]);
    if (mover->session->wish->is_recursive) {
        TRY(root_of(&side, root));
        place_set(&mover->to, &side, root);
        return tree_do(mover, &mover->to, ITEM_DELETE);
    }
    if (side.path[0] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT,
                          "'%s' is a bucket: --recursive empties it, `shoal s3 rb` removes it",
                          mover->session->wish->words[0]);
    place_set(&mover->to, &side, side.path);
    mover->items[0] = (struct item){.what = ITEM_DELETE};
    mover->count = 1;
    return batch_do(mover);
}

enum shoal_status s3_cp(struct s3_session *session)
{
    return with_items(session, cp_do);
}

enum shoal_status s3_sync(struct s3_session *session)
{
    return with_items(session, sync_do);
}

enum shoal_status s3_rm(struct s3_session *session)
{
    return with_items(session, rm_do);
}
