/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit_upload.c: what a job needs of this machine goes into its bucket: the source as the SDKs
 * pack it (<job>/source/sourcedir.tar.gz), and folders of data (<job>/input/<channel>/).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "channel/archive.h"
#include "channel/tree.h"
#include "s3/tree.h"
#include "scaled_text.h"
#include "submit.h"

#define DEFAULT_ENTRY  "train.py"
#define DEFAULT_BUCKET "shoal"
#define DRAW_NS        (100 * BASE_NS_PER_MS)

/* ---- progress: one line on a terminal ---- */

struct progress {
    atomic_int_fast64_t bytes, drawn_ns;
    atomic_bool is_drawn;
    bool is_shown;
};

static void progress_add(void *user, int64_t bytes)
{
    struct progress *progress = user;
    int64_t now_ns = base_now_ns(), done = atomic_fetch_add(&progress->bytes, bytes) + bytes;
    int_fast64_t drawn_ns = atomic_load(&progress->drawn_ns);
    if (progress->is_shown && now_ns - drawn_ns >= DRAW_NS &&
        atomic_compare_exchange_strong(&progress->drawn_ns, &drawn_ns, now_ns)) {
        fprintf(stderr, "\ruploading: %s\033[K", scaled_bytes_text((double)done));
        atomic_store(&progress->is_drawn, true);
    }
}

static void progress_end(struct progress *progress)
{
    if (atomic_load(&progress->is_drawn))
        fputs("\r\033[K", stderr);
}

/* ---- data ---- */

bool submit_is_address(const char *what)
{
    return strncmp(what, "s3://", 5) == 0;
}

enum shoal_status submit_data_split(const char *word, char name[65], const char **what)
{
    size_t length = strcspn(word, "=/:");
    bool has_name = word[length] == '=';
    if (has_name && (length == 0 || length > 64))
        return base_error(SHOAL_ERR_ARGUMENT, "--data %s: a name has 1 to 64 characters", word);
    snprintf(name, 65, "%.*s", has_name ? (int)length : 64, has_name ? word : "training");
    *what = has_name ? word + length + 1 : word;
    if (**what == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "--data %s: no folder or s3://bucket/prefix", word);
    return SHOAL_OK;
}

void submit_data_prefix(const struct submit *submit, const char *channel, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s/input/%s/", submit->job, channel);
}

/* What s3's calls return, as these commands pass failures on; the text is there already. */
static enum shoal_status passed_on(enum s3_code code)
{
    return code == S3_OK ? SHOAL_OK : SHOAL_ERR_PEER_REFUSED;
}

static enum shoal_status data_upload(const struct submit *submit, struct s3_client *store)
{
    for (int i = 0; i < submit->data.count; i++) {
        char name[65], prefix[256];
        const char *what;
        int64_t count;
        TRY(submit_data_split(submit->data.items[i], name, &what));
        if (submit_is_address(what))
            continue;
        submit_data_prefix(submit, name, prefix, sizeof(prefix));
        TRY(passed_on(s3_client_store_tree(store, what, submit->bucket, prefix, &count)));
        if (count == 0)
            return base_error(SHOAL_ERR_ARGUMENT, "--data %s: there are no files in it", what);
    }
    return SHOAL_OK;
}

/* ---- source ---- */

static enum shoal_status archive_write(void *user, const void *data, size_t bytes)
{
    int fd = *(int *)user;
    for (size_t done = 0; done < bytes;) {
        ssize_t count = write(fd, (const char *)data + done, bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "no memory for the source's archive");
        done += (size_t)count;
    }
    return SHOAL_OK;
}

/* What version control and Python keep beside the source is no part of it. */
static bool is_left_out(const char *path)
{
    static const char *const names[] = {".git", "__pycache__"};
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            size_t length = strlen(names[i]);
            if (strncmp(part, names[i], length) == 0 &&
                (part[length] == '\0' || part[length] == '/'))
                return true;
        }
    }
    return false;
}

static enum shoal_status folder_pack(int folder_fd, int archive_fd)
{
    struct channel_tree tree = {0};
    int64_t left_out;
    size_t kept = 0;
    enum shoal_status status = channel_tree_add(&tree, folder_fd, 0);
    for (size_t i = 0; status == SHOAL_OK && i < tree.count; i++) {
        if (!is_left_out(tree.entries[i].path))
            tree.entries[kept++] = tree.entries[i];
    }
    if (status == SHOAL_OK) {
        tree.count = kept;
        channel_tree_merge(&tree);
        status = channel_archive_pack(&tree, &folder_fd, "/opt/ml/code", archive_write, &archive_fd,
                                      &left_out);
    }
    channel_tree_release(&tree);
    return status;
}

static enum shoal_status script_pack(int folder_fd, const char *script, int archive_fd)
{
    struct stat about;
    int64_t left_out;
    if (fstatat(folder_fd, script, &about, 0) != 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "cannot look at %s", script);
    struct channel_entry entry = {.path = script,
                                  .mode = about.st_mode,
                                  .bytes = about.st_size,
                                  .modified_ms = (int64_t)about.st_mtim.tv_sec * 1000};
    struct channel_tree tree = {.entries = &entry, .count = 1, .room = 1};
    return channel_archive_pack(&tree, &folder_fd, "/opt/ml/code", archive_write, &archive_fd,
                                &left_out);
}

static enum shoal_status source_pack(const struct submit *submit, int archive_fd)
{
    return submit->is_folder ? folder_pack(submit->folder_fd, archive_fd)
                             : script_pack(submit->folder_fd, submit->script, archive_fd);
}

static enum shoal_status source_upload(const struct submit *submit, struct s3_client *store,
                                       int archive_fd)
{
    struct stat about;
    struct s3_client_put put = {
        .bucket = submit->bucket, .key = submit->source_key, .content_type = "application/gzip"};
    TRY(source_pack(submit, archive_fd));
    if (fstat(archive_fd, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "the source's archive");
    return passed_on(s3_client_put(store, &put, archive_fd, 0, about.st_size, NULL));
}

/* ---- where things are ---- */

/* The folder that the script is in, and the script's name there. */
static enum shoal_status source_split(struct submit *submit, char folder[PATH_MAX])
{
    struct stat about;
    if (stat(submit->path, &about) != 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "cannot open %s", submit->path);
    submit->is_folder = S_ISDIR(about.st_mode);
    if (!submit->is_folder && submit->entry != NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "--entry names a script in a folder, and %s is none",
                          submit->path);
    const char *slash = strrchr(submit->path, '/');
    const char *name = slash != NULL ? slash + 1 : submit->path;
    int bytes = slash != NULL ? (int)(slash - submit->path) + 1 : 0;
    if (submit->is_folder) {
        name = submit->entry != NULL ? submit->entry : DEFAULT_ENTRY;
        bytes = (int)strlen(submit->path);
    }
    if (snprintf(submit->script, sizeof(submit->script), "%s", name) > NAME_MAX ||
        bytes >= PATH_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "the name %s is too long", submit->path);
    snprintf(folder, PATH_MAX, "%.*s", bytes > 0 ? bytes : 1, bytes > 0 ? submit->path : ".");
    return SHOAL_OK;
}

static enum shoal_status source_open(struct submit *submit)
{
    char folder[PATH_MAX];
    TRY(source_split(submit, folder));
    submit->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (submit->folder_fd < 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "cannot open %s", folder);
    if (faccessat(submit->folder_fd, submit->script, R_OK, 0) != 0)
        return base_error_errno(SHOAL_ERR_ARGUMENT, errno, "cannot read %s in %s%s", submit->script,
                                folder, submit->entry == NULL ? " (--entry names the script)" : "");
    return SHOAL_OK;
}

enum shoal_status submit_find(struct submit *submit)
{
    const char *output = submit->output != NULL ? submit->output : "s3://" DEFAULT_BUCKET "/";
    size_t length = strncmp(output, "s3://", 5) == 0 ? strcspn(output + 5, "/") : 0;
    if (length == 0 || length >= sizeof(submit->bucket))
        return base_error(SHOAL_ERR_ARGUMENT, "--output %s: it has to be s3://bucket/prefix",
                          output);
    snprintf(submit->bucket, sizeof(submit->bucket), "%.*s", (int)length, output + 5);
    snprintf(submit->source_key, sizeof(submit->source_key), "%s/source/sourcedir.tar.gz",
             submit->job);
    for (int i = 0; i < submit->data.count; i++) {
        char name[65];
        const char *what;
        struct stat about;
        TRY(submit_data_split(submit->data.items[i], name, &what));
        if (!submit_is_address(what) && (stat(what, &about) != 0 || !S_ISDIR(about.st_mode)))
            return base_error(SHOAL_ERR_ARGUMENT,
                              "--data %s: there is no such folder, and it is no s3://bucket/prefix",
                              what);
    }
    return source_open(submit);
}

/* ---- all of it ---- */

/* The default bucket is made when it is not there; others are their owners'. */
static enum shoal_status bucket_make(const struct submit *submit, struct s3_client *store)
{
    if (submit->output != NULL)
        return SHOAL_OK;
    enum s3_code code = s3_client_bucket_create(store, submit->bucket);
    return code == S3_BUCKET_OWNED || code == S3_BUCKET_EXISTS ? SHOAL_OK : passed_on(code);
}

enum shoal_status submit_upload(struct submit *submit)
{
    struct progress progress = {.is_shown = isatty(STDERR_FILENO) != 0, .drawn_ns = base_now_ns()};
    struct s3_client *store;
    TRY(job_client_store(&submit->client,
                         &(struct s3_client_options){.progress = progress_add, .user = &progress},
                         &store));
    int archive_fd = memfd_create("source", MFD_CLOEXEC);
    enum shoal_status status =
        archive_fd >= 0 ? bucket_make(submit, store)
                        : base_error_errno(SHOAL_ERR_SYSTEM, errno, "the source's archive");
    if (status == SHOAL_OK)
        status = source_upload(submit, store, archive_fd);
    if (status == SHOAL_OK)
        status = data_upload(submit, store);
    progress_end(&progress);
    if (archive_fd >= 0)
        close(archive_fd);
    s3_client_free(store);
    return status;
}
