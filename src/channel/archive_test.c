/* SPDX-License-Identifier: Apache-2.0 */
/* archive_test.c: archives that attack, archives that don't, and bytes that are none. */
#include "channel/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "channel/tree.h"
#include "support/files.h"
#include "support/fuzz.h"

struct trial {
    char path[64]; /* holds "in", where archives go, and "secret" beside it */
    int fd, in_fd;
};

static int setup(void **state)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    snprintf(trial->path, sizeof(trial->path), "/tmp/shoal-archive-XXXXXX");
    assert_non_null(mkdtemp(trial->path));
    put_file(trial->path, "secret", "secret");
    trial->fd = open(trial->path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(channel_folder_open(trial->fd, "in", &trial->in_fd), SHOAL_OK);
    *state = trial;
    return 0;
}

static int teardown(void **state)
{
    struct trial *trial = *state;
    close(trial->in_fd);
    close(trial->fd);
    assert_int_equal(channel_tree_remove(AT_FDCWD, trial->path), SHOAL_OK);
    free(trial);
    return 0;
}

/* ---- archives ---- */

struct item {
    const char *path;
    mode_t kind;      /* AE_IF*; 0: a hard link */
    const char *text; /* of a file, target of a link; "zeros": 64 MiB of them */
    mode_t mode;
};

#define ZEROS_BYTES (INT64_C(64) << 20)

static void write_zeros(struct archive *archive)
{
    char *zeros = calloc(1, 1 << 20);
    for (int64_t i = 0; i < ZEROS_BYTES >> 20; i++)
        assert_int_equal(archive_write_data(archive, zeros, 1 << 20), 1 << 20);
    free(zeros);
}

static void write_item(struct archive *archive, const struct item *item)
{
    struct archive_entry *entry = archive_entry_new();
    bool is_bomb = item->text != NULL && strcmp(item->text, "zeros") == 0;
    archive_entry_set_pathname(entry, item->path);
    archive_entry_set_mode(entry, (item->kind != 0 ? item->kind : AE_IFREG) |
                                      (item->mode != 0 ? item->mode : 0644));
    if (item->kind == 0)
        archive_entry_set_hardlink(entry, item->text);
    else if (item->kind == AE_IFLNK)
        archive_entry_set_symlink(entry, item->text);
    else if (item->kind == AE_IFREG)
        archive_entry_set_size(entry, is_bomb ? ZEROS_BYTES : (int64_t)strlen(item->text));
    assert_true(archive_write_header(archive, entry) >= ARCHIVE_WARN);
    if (item->kind == AE_IFREG && is_bomb)
        write_zeros(archive);
    else if (item->kind == AE_IFREG)
        archive_write_data(archive, item->text, strlen(item->text));
    archive_entry_free(entry);
}

/* A descriptor of an archive with these items, a path NULL behind. */
static int archive_of(const struct item *items)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    struct archive *archive = archive_write_new();
    archive_write_set_format_gnutar(archive);
    archive_write_add_filter_gzip(archive);
    archive_write_set_filter_option(archive, "gzip", "compression-level", "9");
    assert_int_equal(archive_write_open_fd(archive, fd), ARCHIVE_OK);
    for (; items->path != NULL; items++)
        write_item(archive, items);
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static enum shoal_status extract(struct trial *trial, const struct item *items)
{
    int fd = archive_of(items);
    enum shoal_status status = channel_archive_extract(fd, trial->in_fd, NULL, NULL);
    close(fd);
    return status;
}

static void file_is(int folder_fd, const char *path, const char *text)
{
    char seen[128] = "";
    int fd = openat(folder_fd, path, O_RDONLY);
    if (fd < 0)
        fail_msg("no file %s", path);
    assert_int_equal(read(fd, seen, sizeof(seen) - 1), strlen(text));
    assert_string_equal(seen, text);
    close(fd);
}

static bool is_there(int folder_fd, const char *path)
{
    return faccessat(folder_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- what is taken ---- */

static void a_source_archive_is_extracted(void **state)
{
    struct trial *trial = *state;
    struct stat about;
    const struct item items[] = {{"./", AE_IFDIR, NULL, 0755},
                                 {"./train.py", AE_IFREG, "print(1)", 0},
                                 {"lib/", AE_IFDIR, NULL, 0500},
                                 {"lib/a.py", AE_IFREG, "a", 0},
                                 {"lib/deep/er/b", AE_IFREG, "b", 04755},
                                 {"lib/same", 0, "lib/a.py", 0},
                                 {"lib/\xC3\xA9t\xC3\xA9", AE_IFREG, "summer", 0},
                                 {"link", AE_IFLNK, "lib/a.py", 0},
                                 {"lib/up", AE_IFLNK, "../train.py", 0},
                                 {"train.py", AE_IFREG, "print(2)", 0400},
                                 {NULL, 0, NULL, 0}};
    int fd = archive_of(items);
    struct channel_archive_sum sum;
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, NULL, &sum), SHOAL_OK);
    close(fd);
    assert_int_equal(sum.entries, 10);
    assert_int_equal(sum.bytes, 8 + 1 + 1 + 6 + 8);
    file_is(trial->in_fd, "train.py", "print(2)");
    file_is(trial->in_fd, "lib/a.py", "a");
    file_is(trial->in_fd, "lib/same", "a");
    file_is(trial->in_fd, "lib/deep/er/b", "b");
    file_is(trial->in_fd, "lib/\xC3\xA9t\xC3\xA9", "summer");
    file_is(trial->in_fd, "link", "a");
    file_is(trial->in_fd, "lib/up", "print(2)");
    assert_int_equal(fstatat(trial->in_fd, "lib/deep/er/b", &about, 0), 0);
    assert_int_equal(about.st_mode & 07777, 0755);
    assert_int_equal(fstatat(trial->in_fd, "train.py", &about, 0), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(fstatat(trial->in_fd, "lib", &about, 0), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
}

static void an_empty_file_is_an_archive_of_nothing(void **state)
{
    struct trial *trial = *state;
    int fd = memfd_create("archive", MFD_CLOEXEC);
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, NULL, NULL), SHOAL_OK);
    close(fd);
}

/* ---- what is refused ---- */

static void attacks_are_refused(void **state)
{
    struct trial *trial = *state;
    static const struct item attacks[][4] = {
        {{"../secret", AE_IFREG, "mine", 0}},
        {{"a/../../secret", AE_IFREG, "mine", 0}},
        {{"/tmp/shoal-archive-secret", AE_IFREG, "mine", 0}},
        {{"..", AE_IFDIR, NULL, 0755}},
        {{"out", AE_IFLNK, "..", 0}, {"out/secret", AE_IFREG, "mine", 0}},
        {{"out", AE_IFLNK, "/", 0}},
        {{"out", AE_IFLNK, "../secret", 0}},
        {{"in", AE_IFLNK, ".", 0}, {"in/file", AE_IFREG, "mine", 0}},
        {{"d", AE_IFDIR, NULL, 0755}, {"d/out", AE_IFLNK, "../../secret", 0}},
        {{"out", 0, "../secret", 0}},
        {{"out", 0, "/etc/passwd", 0}},
        {{"out", 0, "not-there", 0}},
        {{"f", AE_IFREG, "f", 0}, {"f/below", AE_IFREG, "mine", 0}},
        {{"d/e", AE_IFREG, "e", 0}, {"d", AE_IFREG, "mine", 0}},
        {{"device", AE_IFCHR, NULL, 0666}},
        {{"device", AE_IFBLK, NULL, 0666}},
        {{"fifo", AE_IFIFO, NULL, 0666}},
    };
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        enum shoal_status status = extract(trial, attacks[i]);
        if (status != SHOAL_ERR_ARGUMENT && status != SHOAL_ERR_STATE)
            fail_msg("attack %zu on '%s': %d", i, attacks[i][0].path, status);
        file_is(trial->fd, "secret", "secret");
        close(trial->in_fd);
        assert_int_equal(channel_tree_remove(trial->fd, "in"), SHOAL_OK);
        assert_int_equal(channel_folder_open(trial->fd, "in", &trial->in_fd), SHOAL_OK);
    }
    assert_int_equal(access("/tmp/shoal-archive-secret", F_OK), -1);
}

/* A link whose way depends on another one: each is within the archive by its letters. */
static void links_cannot_be_bent_by_links(void **state)
{
    struct trial *trial = *state;
    const struct item items[] = {{"a/b/c/", AE_IFDIR, NULL, 0755},
                                 {"a/b/c/top", AE_IFLNK, "../../..", 0},
                                 {"bent", AE_IFLNK, "a/b/c/top/../secret", 0},
                                 {NULL, 0, NULL, 0}};
    assert_int_equal(extract(trial, items), SHOAL_OK);
    char target[128] = "";
    assert_true(readlinkat(trial->in_fd, "bent", target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "a/b/c/secret");
    assert_int_equal(faccessat(trial->in_fd, "bent", F_OK, 0), -1);
}

static void bombs_end_early(void **state)
{
    struct trial *trial = *state;
    const struct item bomb[] = {{"zeros", AE_IFREG, "zeros", 0}, {NULL, 0, NULL, 0}};
    struct stat about;
    struct channel_archive_limits small = CHANNEL_ARCHIVE_LIMITS_INIT;
    int fd = archive_of(bomb);
    small.ratio_bytes = 8 << 20;
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, &small, NULL), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "times its own size, at 'zeros'"));
    assert_int_equal(fstatat(trial->in_fd, "zeros", &about, 0), 0);
    assert_true(about.st_size < 32 << 20);
    small.bytes = 1 << 20;
    lseek(fd, 0, SEEK_SET);
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, &small, NULL), SHOAL_ERR_LIMIT);
    close(fd);
    const struct item three[] = {
        {"a", AE_IFREG, "", 0}, {"b", AE_IFREG, "", 0}, {"c", AE_IFREG, "", 0}, {NULL, 0, NULL, 0}};
    small.entries = 2;
    fd = archive_of(three);
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, &small, NULL), SHOAL_ERR_LIMIT);
    assert_string_equal(base_error_text(), "the archive has more than 2 entries");
    close(fd);
}

static void deep_names_are_refused(void **state)
{
    struct trial *trial = *state;
    char path[CHANNEL_PATH_BYTES] = "";
    for (int i = 0; i < 100; i++)
        strcat(path, "d/");
    strcat(path, "f");
    const struct item deep[] = {{path, AE_IFREG, "x", 0}, {NULL, 0, NULL, 0}};
    assert_int_equal(extract(trial, deep), SHOAL_ERR_ARGUMENT);
}

static void take_any_archive(void *user, char *bytes, size_t count, uint64_t round)
{
    static const struct channel_archive_limits limits = {
        .entries = 64, .bytes = 1 << 16, .ratio = 200, .ratio_bytes = 1 << 12};
    struct trial *trial = user;
    int fd = memfd_create("broken", MFD_CLOEXEC);
    (void)round;
    assert_int_equal(write(fd, bytes, count), count);
    lseek(fd, 0, SEEK_SET);
    channel_archive_extract(fd, trial->in_fd, &limits, NULL);
    close(fd);
    file_is(trial->fd, "secret", "secret");
}

/* Any bytes: an answer, nothing outside the folder, and no more than the limits. */
static void broken_archives_are_errors(void **state)
{
    struct trial *trial = *state;
    const struct item items[] = {{"a/", AE_IFDIR, NULL, 0755},
                                 {"a/file", AE_IFREG, "some text that is long enough", 0},
                                 {"link", AE_IFLNK, "a/file", 0},
                                 {NULL, 0, NULL, 0}};
    static char whole[16384];
    static const char *const words[] = {
        "../", "/", "link", "a/file", "\x1f\x8b\x08", "L", "1", "2", "5", "00000000017", NULL};
    int fd = archive_of(items);
    ssize_t bytes = read(fd, whole, sizeof(whole));
    close(fd);
    assert_true(bytes > 64);
    const struct fuzz_text texts[] = {{whole, (size_t)bytes}};
    struct fuzz fuzz = FUZZ(texts, words, 300, .bytes_max = sizeof(whole));
    fuzz_run(&fuzz, take_any_archive, trial);
    fd = memfd_create("text", MFD_CLOEXEC);
    assert_int_equal(write(fd, "not an archive", 14), 14);
    lseek(fd, 0, SEEK_SET);
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, NULL, NULL), SHOAL_ERR_FORMAT);
    close(fd);
}

/* ---- packing ---- */

struct packed {
    int fd;
};

static enum shoal_status take(void *user, const void *data, size_t bytes)
{
    struct packed *packed = user;
    assert_int_equal(write(packed->fd, data, bytes), bytes);
    return SHOAL_OK;
}

/* Packs the two folders "one" and "two" of the trial. */
static int pack(struct trial *trial, int64_t *left_out)
{
    struct channel_tree tree = {0};
    struct packed packed = {memfd_create("packed", MFD_CLOEXEC)};
    int folders[2];
    assert_int_equal(channel_folder_open(trial->fd, "one", &folders[0]), SHOAL_OK);
    assert_int_equal(channel_folder_open(trial->fd, "two", &folders[1]), SHOAL_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(channel_tree_add(&tree, folders[i], i), SHOAL_OK);
    channel_tree_merge(&tree);
    assert_int_equal(channel_archive_pack(&tree, folders, "/opt/ml/model", take, &packed, left_out),
                     SHOAL_OK);
    channel_tree_release(&tree);
    close(folders[0]);
    close(folders[1]);
    lseek(packed.fd, 0, SEEK_SET);
    return packed.fd;
}

static void hostile_folders_are_packed_and_merged(void **state)
{
    struct trial *trial = *state;
    int64_t left_out;
    put_file(trial->path, "one/model", "one");
    put_file(trial->path, "one/b/weights", "weights");
    put_file(trial->path, "one/x", "a file here");
    put_file(trial->path, "two/model", "two");
    put_file(trial->path, "two/b/more", "more");
    put_file(trial->path, "two/x/y", "a folder there");
    put_file(trial->path, "two/\xC3\xA9 \n", "odd name");
    assert_int_equal(symlinkat("../secret", trial->fd, "one/out"), 0);
    assert_int_equal(symlinkat("/etc/passwd", trial->fd, "one/b/passwd"), 0);
    assert_int_equal(symlinkat("/opt/ml/model/b/weights", trial->fd, "one/latest"), 0);
    assert_int_equal(symlinkat("../model", trial->fd, "one/b/same"), 0);
    assert_int_equal(mkfifoat(trial->fd, "one/fifo", 0644), 0);
    int fd = pack(trial, &left_out);
    assert_int_equal(left_out, 3);
    assert_int_equal(channel_archive_extract(fd, trial->in_fd, NULL, NULL), SHOAL_OK);
    close(fd);
    file_is(trial->in_fd, "model", "one");
    file_is(trial->in_fd, "b/weights", "weights");
    file_is(trial->in_fd, "b/more", "more");
    file_is(trial->in_fd, "x", "a file here");
    file_is(trial->in_fd, "latest", "weights");
    file_is(trial->in_fd, "b/same", "one");
    file_is(trial->in_fd, "\xC3\xA9 \n", "odd name");
    assert_false(is_there(trial->in_fd, "out"));
    assert_false(is_there(trial->in_fd, "b/passwd"));
    assert_false(is_there(trial->in_fd, "fifo"));
}

static void the_same_tree_gives_the_same_bytes(void **state)
{
    struct trial *trial = *state;
    static char first[1 << 16], second[1 << 16];
    int64_t left_out;
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof(name), "one/%d/file-%d", i % 3, i * 7919 % 41);
        put_file(trial->path, name, name);
    }
    int fd = pack(trial, &left_out);
    ssize_t bytes = read(fd, first, sizeof(first));
    close(fd);
    fd = pack(trial, &left_out);
    assert_int_equal(read(fd, second, sizeof(second)), bytes);
    assert_memory_equal(first, second, bytes);
    close(fd);
}

/* ---- removing ---- */

static void deep_trees_are_removed(void **state)
{
    struct trial *trial = *state;
    int at = dup(trial->in_fd);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(at, "deep", 0755), 0);
        int next = openat(at, "deep", O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        if (i % 1000 == 0)
            assert_int_equal(symlinkat("/tmp", next, "link"), 0);
        close(at);
        at = next;
    }
    close(at);
    assert_int_equal(channel_tree_remove(trial->fd, "in"), SHOAL_OK);
    assert_false(is_there(trial->fd, "in"));
    assert_true(is_there(trial->fd, "secret"));
}

int main(void)
{
#define ARCHIVE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        ARCHIVE_TEST(a_source_archive_is_extracted),
        ARCHIVE_TEST(an_empty_file_is_an_archive_of_nothing),
        ARCHIVE_TEST(attacks_are_refused),
        ARCHIVE_TEST(links_cannot_be_bent_by_links),
        ARCHIVE_TEST(bombs_end_early),
        ARCHIVE_TEST(deep_names_are_refused),
        ARCHIVE_TEST(broken_archives_are_errors),
        ARCHIVE_TEST(hostile_folders_are_packed_and_merged),
        ARCHIVE_TEST(the_same_tree_gives_the_same_bytes),
        ARCHIVE_TEST(deep_trees_are_removed),
    };
    return cmocka_run_group_tests_name("archives", tests, NULL, NULL);
}
