/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance_root.c: the files of an instance, as a new root that is put together of mounts.
 *
 * The new root is a small tmpfs. Each top folder of the machine (or of the plan's root) is mounted
 * in it, read-only, with all that is mounted below it there; then /dev, /proc and /sys are made
 * anew, the instance's own folders are laid over /tmp, /root and the like, where an image that the
 * instance has a copy of has none of its own, and the plan's mounts over those. Where a mount point
 * is missing and its folder is read-only (/opt/ml on a machine that has only /opt), that folder
 * becomes a tmpfs in which each of its entries is mounted again.
 *
 * While this goes on, the old root stands at /old and the new one at /new, so that neither's
 * symbolic links can lead into the other; paths within one are resolved below its own top
 * (RESOLVE_IN_ROOT), for an image may hold any link.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "job/devices.h"
#include "job/instance_state.h"

#define PATH_BYTES         4096
#define FOLDER_ENTRIES_MAX 4096
#define RESOLVE_TRIES      8
#define READ_ONLY          (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)

struct builder {
    const struct job_plan *plan;
    const struct job_instance_plan *instance;
    const struct job_limits *limits;
    struct instance_message *failure;
    int old_fd, source_fd, new_fd; /* the machine's root, the plan's, the one that is built */
    bool is_image;                 /* it is not the machine's own */
    bool is_copied;                /* it is an own copy, which stays writable */
};

static bool failed(struct builder *builder, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool failed(struct builder *builder, bool condition, const char *format, ...)
{
    if (!condition)
        return false;
    int error_number = errno;
    char text[INSTANCE_STEP_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    errno = error_number;
    return instance_step_failed(builder->failure, true, "%s", text);
}

/* ---- mounts as descriptors ---- */

/* An O_PATH descriptor of a path below `root_fd`, whatever links there are on the way; or -1. */
static int resolve(int root_fd, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    int fd = -1;
    for (int i = 0; i < RESOLVE_TRIES; i++) {
        fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}

static bool is_folder(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_same(int fd, int other_fd)
{
    struct stat one, other;
    return fstat(fd, &one) == 0 && fstat(other_fd, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* A copy of the mounts from (folder_fd, name) down, not attached yet; or -1. */
static int clone_mounts(int folder_fd, const char *name, uint64_t attributes)
{
    struct mount_attr change = {.attr_set = attributes};
    int flags = AT_RECURSIVE | (*name == '\0' ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW);
    int fd = open_tree(folder_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)flags);
    if (fd >= 0 && attributes != 0 &&
        mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &change, sizeof(change)) != 0) {
        int error_number = errno;
        close(fd);
        errno = error_number;
        return -1;
    }
    return fd;
}

/* A new file system, not attached yet; options are pairs of words with NULL behind; or -1. */
static int make_mount(const char *type, const char *const *options, uint64_t attributes)
{
    int context = fsopen(type, FSOPEN_CLOEXEC), fd = -1;
    if (context < 0)
        return -1;
    int result = fsconfig(context, FSCONFIG_SET_STRING, "source", "shoal", 0);
    for (int i = 0; result == 0 && options[i] != NULL; i += 2)
        result = fsconfig(context, FSCONFIG_SET_STRING, options[i], options[i + 1], 0);
    if (result == 0)
        result = fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    if (result == 0)
        fd = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)attributes);
    int error_number = errno;
    close(context);
    errno = error_number;
    return fd;
}

/* Attaches a mount over what target_fd names. Closes both; -1 in either is a failure, too. */
static bool attach(int mount_fd, int target_fd)
{
    int error_number = errno;
    bool done = false;
    if (mount_fd >= 0 && target_fd >= 0) {
        done = move_mount(mount_fd, "", target_fd, "",
                          MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
        error_number = errno;
    }
    if (mount_fd >= 0)
        close(mount_fd);
    if (target_fd >= 0)
        close(target_fd);
    errno = error_number;
    return done;
}

/* ---- folders and mount points in the new root ---- */

static bool make_entry(int folder_fd, const char *name, bool folder)
{
    if (folder)
        return mkdirat(folder_fd, name, 0755) == 0;
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* One entry of a folder appears in another, which is writable: a link as a link, all else mounted.
 */
static bool show_entry(int from_fd, int to_fd, const char *name, uint64_t attributes)
{
    struct stat status;
    char target[PATH_BYTES];
    if (fstatat(from_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISLNK(status.st_mode)) {
        ssize_t bytes = readlinkat(from_fd, name, target, sizeof(target) - 1);
        if (bytes < 0)
            return false;
        target[bytes] = '\0';
        return symlinkat(target, to_fd, name) == 0;
    }
    if (!make_entry(to_fd, name, S_ISDIR(status.st_mode)))
        return false;
    int mount_fd = clone_mounts(from_fd, name, attributes);
    return attach(mount_fd, openat(to_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

static bool is_made_anew(int root_fd, const char *name)
{
    (void)root_fd;
    return strcmp(name, "dev") == 0 || strcmp(name, "proc") == 0 || strcmp(name, "sys") == 0;
}

static bool is_there(int folder_fd, const char *name)
{
    return faccessat(folder_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* All entries of a folder appear in another, but those that are passed over there. */
static bool show_entries(int from_fd, int to_fd,
                         bool (*is_passed_over)(int to_fd, const char *name), uint64_t attributes)
{
    int list_fd = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = list_fd >= 0 ? fdopendir(list_fd) : NULL;
    if (list == NULL)
        return false;
    bool good = true;
    int count = 0;
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            is_passed_over(to_fd, entry->d_name))
            continue;
        if (++count > FOLDER_ENTRIES_MAX) {
            errno = E2BIG;
            good = false;
        } else {
            good = show_entry(from_fd, to_fd, entry->d_name, attributes);
        }
    }
    int error_number = errno;
    closedir(list);
    errno = error_number;
    return good;
}

static int make_tmpfs(const char *mode, const char *size)
{
    const char *const options[] = {"mode", mode, size != NULL ? "size" : NULL, size, NULL};
    return make_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* Makes a read-only folder one in which entries can be made. */
static bool open_up(struct builder *builder, const char *path)
{
    int below = resolve(builder->new_fd, path), target = resolve(builder->new_fd, path), top = -1;
    bool good = below >= 0 && attach(make_tmpfs("755", "1m"), target);
    if (good)
        top = resolve(builder->new_fd, path);
    good = good && top >= 0 && show_entries(below, top, is_there, 0);
    int error_number = errno;
    if (below >= 0)
        close(below);
    if (top >= 0)
        close(top);
    errno = error_number;
    return good;
}

/* The mount point at an absolute path of the new root, made where it is missing; or -1. */
static int place(struct builder *builder, const char *path, bool folder)
{
    int fd = resolve(builder->new_fd, path);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    char parent[PATH_BYTES];
    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL || slash[1] == '\0')
        return -1;
    const char *name = path + (slash - parent) + 1;
    slash[slash == parent ? 1 : 0] = '\0';
    int parent_fd = place(builder, parent, true);
    if (parent_fd < 0)
        return -1;
    bool made = make_entry(parent_fd, name, folder);
    if (!made && errno == EROFS && open_up(builder, parent)) {
        close(parent_fd);
        parent_fd = resolve(builder->new_fd, parent);
        made = parent_fd >= 0 && make_entry(parent_fd, name, folder);
    }
    int error_number = errno;
    if (parent_fd >= 0)
        close(parent_fd);
    errno = error_number;
    return made ? resolve(builder->new_fd, path) : -1;
}

/* Mounts a file or folder of the machine at a path of the instance. */
static bool show(struct builder *builder, const char *from, const char *to, uint64_t attributes)
{
    int from_fd = resolve(builder->old_fd, from);
    bool folder = from_fd >= 0 && is_folder(from_fd);
    int mount_fd = from_fd >= 0 ? clone_mounts(from_fd, "", attributes) : -1;
    int error_number = errno;
    if (from_fd >= 0)
        close(from_fd);
    errno = error_number;
    if (failed(builder, mount_fd < 0, "reading %s for mounting it", from))
        return false;
    return !failed(builder, !attach(mount_fd, place(builder, to, folder)), "mounting %s at %s",
                   from, to);
}

/* The same for a file or folder of the instance's own. */
static bool show_own(struct builder *builder, const char *name, const char *to)
{
    char from[PATH_BYTES];
    snprintf(from, sizeof(from), "%s/%s", builder->instance->folder, name);
    return show(builder, from, to, MOUNT_ATTR_NODEV);
}

/* ---- own copies ---- */

/* A path as an option of overlayfs, whose separators are escaped. False if it is too long. */
static bool put_overlay_path(char *options, size_t capacity, const char *key, const char *folder,
                             const char *tail)
{
    size_t used = strlen(options);
    used +=
        (size_t)snprintf(options + used, capacity - used, "%s%s=/old", used > 0 ? "," : "", key);
    for (const char *part = folder; part != NULL; part = part == folder ? tail : NULL) {
        for (const char *at = part; *at != '\0'; at++) {
            if (used + 3 > capacity)
                return false;
            if (*at == '\\' || *at == ':' || *at == ',')
                options[used++] = '\\';
            options[used++] = *at;
        }
    }
    options[used] = '\0';
    return true;
}

/* Mounts a folder of the machine at /stage, with the changes of this instance in its own folder,
 * under own/copy-<name>. `options` is room for PATH_BYTES. False with errno. */
static bool mount_copy(const char *from, const char *folder, const char *name, char *options)
{
    char upper[64], work[64];
    snprintf(upper, sizeof(upper), "/own/copy-%s/upper", name);
    snprintf(work, sizeof(work), "/own/copy-%s/work", name);
    *options = '\0';
    if (!put_overlay_path(options, PATH_BYTES, "lowerdir", from, "") ||
        !put_overlay_path(options, PATH_BYTES, "upperdir", folder, upper) ||
        !put_overlay_path(options, PATH_BYTES, "workdir", folder, work) ||
        strlen(options) + sizeof(",userxattr") >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    size_t plain_bytes = strlen(options);
    strcat(options, ",userxattr"); /* in a user namespace; else not wanted by older kernels */
    bool mounted = mount("overlay", "/stage", "overlay", MS_NODEV, options) == 0;
    options[plain_bytes] = '\0';
    return mounted || mount("overlay", "/stage", "overlay", MS_NODEV, options) == 0;
}

/* A folder of the machine, as an own copy. Where overlayfs can't have one, read-only. */
static bool show_copy(struct builder *builder, const struct job_mount *wanted, int index)
{
    char options[PATH_BYTES], name[16];
    snprintf(name, sizeof(name), "%d", index);
    if (!mount_copy(wanted->from, builder->instance->folder, name, options))
        return show(builder, wanted->from, wanted->to, READ_ONLY);
    int mount_fd = open_tree(AT_FDCWD, "/stage", OPEN_TREE_CLOEXEC);
    return !failed(builder, !attach(mount_fd, place(builder, wanted->to, true)),
                   "mounting %s at %s", wanted->from, wanted->to);
}

/* ---- the parts ---- */

/* The calling process's root becomes a tmpfs with the machine's root at /old. */
static bool leave_root(struct builder *builder)
{
    bool private = mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (failed(builder, !private, "making mounts private%s",
               errno == EINVAL ? " (a chroot must be into a mount point)" : "") ||
        failed(builder,
               mount("shoal", builder->instance->folder, "tmpfs", MS_NOSUID | MS_NODEV,
                     "size=1m,mode=755") != 0,
               "mounting a tmpfs on %s", builder->instance->folder) ||
        failed(builder, chdir(builder->instance->folder) != 0, "entering a tmpfs") ||
        failed(builder, mkdir("old", 0755) != 0 || mkdir("new", 0755) != 0 || mkdir("stage", 0755),
               "making folders in a tmpfs") ||
        failed(builder, syscall(SYS_pivot_root, ".", "old") != 0,
               "leaving the machine's root (pivot_root)%s",
               errno == EINVAL ? ": it is the kernel's first root, or not a mount point" : ""))
        return false;
    return !failed(builder, chdir("/") != 0, "entering the new root");
}

/* The new root as an own copy of the plan's. */
static bool copy_root(struct builder *builder)
{
    char options[PATH_BYTES];
    if (builder->plan->root == NULL || !builder->plan->root_copied ||
        !mount_copy(builder->plan->root, builder->instance->folder, "root", options))
        return false;
    builder->new_fd = open("/stage", O_PATH | O_DIRECTORY | O_CLOEXEC);
    builder->is_copied = builder->new_fd >= 0;
    return builder->is_copied;
}

static bool open_roots(struct builder *builder)
{
    const char *root = builder->plan->root != NULL ? builder->plan->root : "/";
    builder->old_fd = open("/old", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (failed(builder, builder->old_fd < 0, "opening the machine's root"))
        return false;
    builder->source_fd = resolve(builder->old_fd, root);
    if (failed(builder, builder->source_fd < 0, "opening the root folder %s", root))
        return false;
    builder->is_image = !is_same(builder->source_fd, builder->old_fd);
    if (copy_root(builder))
        return true;
    int target = open("/new", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (failed(builder, !attach(make_tmpfs("755", "1m"), target), "mounting the new root"))
        return false;
    builder->new_fd = open("/new", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return !failed(builder, builder->new_fd < 0, "opening the new root") &&
           !failed(builder,
                   !show_entries(builder->source_fd, builder->new_fd, is_made_anew, READ_ONLY),
                   "mounting the folders of %s", root);
}

static bool show_devices(struct builder *builder, int dev_fd)
{
    int machine_fd = resolve(builder->old_fd, "/dev");
    int list_fd =
        machine_fd >= 0 ? openat(machine_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *list = list_fd >= 0 ? fdopendir(list_fd) : NULL;
    bool good = list != NULL;
    for (struct dirent *entry; good && (entry = readdir(list)) != NULL;) {
        if (devices_shown(entry->d_name, ~builder->instance->accelerators_hidden))
            good = show_entry(machine_fd, dev_fd, entry->d_name, 0);
    }
    failed(builder, !good, "showing the machine's devices");
    if (list != NULL)
        closedir(list);
    if (machine_fd >= 0)
        close(machine_fd);
    return good;
}

static bool link_devices(int dev_fd)
{
    static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"},
                                           {"pts/ptmx", "ptmx"}};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (symlinkat(links[i][0], dev_fd, links[i][1]) != 0)
            return false;
    }
    return true;
}

static bool build_dev(struct builder *builder)
{
    static const char *const pts_pairs[] = {"ptmxmode", "0666", "mode", "0620", NULL};
    static const char *const none[] = {NULL};
    char size[32];
    const char *shm_size = NULL;
    if (builder->limits->shared_memory_bytes > 0) {
        snprintf(size, sizeof(size), "%" PRIu64, builder->limits->shared_memory_bytes);
        shm_size = size;
    }
    if (failed(builder, !attach(make_tmpfs("755", "1m"), place(builder, "/dev", true)),
               "mounting /dev"))
        return false;
    int dev_fd = resolve(builder->new_fd, "/dev");
    bool good = show_devices(builder, dev_fd) &&
                !failed(builder, !link_devices(dev_fd), "making links in /dev");
    close(dev_fd);
    if (!good ||
        failed(builder, !attach(make_tmpfs("1777", shm_size), place(builder, "/dev/shm", true)),
               "mounting /dev/shm"))
        return false;
    int pts = make_mount("devpts", pts_pairs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (failed(builder, !attach(pts, place(builder, "/dev/pts", true)), "mounting /dev/pts"))
        return false;
    int queues = make_mount("mqueue", none, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (queues >= 0) /* not in every kernel */
        return !failed(builder, !attach(queues, place(builder, "/dev/mqueue", true)),
                       "mounting /dev/mqueue");
    return true;
}

/* What is there under these paths becomes read-only, or invisible. */
static bool guard(struct builder *builder, const char *path, bool invisible)
{
    int fd = resolve(builder->new_fd, path);
    if (fd < 0)
        return true;
    int cover;
    if (!invisible)
        cover = clone_mounts(fd, "", MOUNT_ATTR_RDONLY);
    else if (is_folder(fd))
        cover = make_tmpfs("755", "1m");
    else {
        int null_fd = resolve(builder->old_fd, "/dev/null");
        cover = null_fd >= 0 ? clone_mounts(null_fd, "", 0) : -1;
        if (null_fd >= 0)
            close(null_fd);
    }
    return !failed(builder, !attach(cover, fd), "covering %s", path);
}

static bool build_proc(struct builder *builder)
{
    static const char *const none[] = {NULL};
    static const char *const read_only[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
                                            "/proc/bus", "/proc/fs"};
    static const char *const invisible[] = {"/proc/kcore",         "/proc/keys", "/proc/timer_list",
                                            "/proc/latency_stats", "/proc/acpi", "/proc/scsi"};
    int proc = make_mount("proc", none, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (failed(builder, proc < 0, "mounting /proc%s",
               errno == EPERM ? " (a container that covers parts of its own /proc can't make one: "
                                "run the service outside it, or as its root with CAP_SYS_ADMIN)"
                              : "") ||
        failed(builder, !attach(proc, place(builder, "/proc", true)), "mounting /proc"))
        return false;
    for (size_t i = 0; i < sizeof(read_only) / sizeof(read_only[0]); i++) {
        if (!guard(builder, read_only[i], false))
            return false;
    }
    for (size_t i = 0; i < sizeof(invisible) / sizeof(invisible[0]); i++) {
        if (!guard(builder, invisible[i], true))
            return false;
    }
    return true;
}

/* A new one shows the instance's own interfaces; where it can't be had, the machine's must do. */
static bool build_sys(struct builder *builder)
{
    static const char *const none[] = {NULL};
    int sys = make_mount("sysfs", none, READ_ONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (sys < 0)
        return show(builder, "/sys", "/sys", READ_ONLY);
    if (failed(builder, !attach(sys, place(builder, "/sys", true)), "mounting /sys") ||
        !guard(builder, "/sys/firmware", true))
        return false;
    int fd = resolve(builder->new_fd, "/sys/fs/cgroup");
    if (fd < 0)
        return true;
    close(fd);
    return show(builder, "/sys/fs/cgroup", "/sys/fs/cgroup", READ_ONLY);
}

/* Whether an image's copy has the folder itself, with what the image holds in it. */
static bool image_has(struct builder *builder, const char *path)
{
    int fd = builder->is_image && builder->is_copied ? resolve(builder->new_fd, path) : -1;
    bool found = fd >= 0 && is_folder(fd);
    if (fd >= 0)
        close(fd);
    return found;
}

/* What an image holds in /opt/ml, such as its code, where the job has nothing of this name. A
 * folder for code without any is as none. */
static bool show_image_ml(struct builder *builder, int image_fd)
{
    int ml_fd = resolve(builder->new_fd, "/opt/ml");
    if (ml_fd >= 0 && is_there(image_fd, "code"))
        unlinkat(ml_fd, "code", AT_REMOVEDIR); /* fails, as it should, where there is some */
    bool good = ml_fd >= 0 && show_entries(image_fd, ml_fd, is_there, 0);
    int error_number = errno;
    if (ml_fd >= 0)
        close(ml_fd);
    errno = error_number;
    return !failed(builder, !good, "showing the image's /opt/ml");
}

static bool build_ml(struct builder *builder)
{
    int image_fd = builder->is_image ? resolve(builder->new_fd, "/opt/ml") : -1;
    bool good = show_own(builder, "ml", "/opt/ml");
    if (image_fd < 0)
        return good;
    good = good && (!is_folder(image_fd) || show_image_ml(builder, image_fd));
    close(image_fd);
    return good;
}

static bool build_own(struct builder *builder)
{
    static const char *const folders[][2] = {{"own/tmp", "/tmp"},
                                             {"own/var-tmp", "/var/tmp"},
                                             {"own/run", "/run"},
                                             {"own/root", "/root"},
                                             {"own/home", "/home"}};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if (!image_has(builder, folders[i][1]) && !show_own(builder, folders[i][0], folders[i][1]))
            return false;
    return show_own(builder, "own/hosts", "/etc/hosts") &&
           show_own(builder, "own/hostname", "/etc/hostname") && build_ml(builder);
}

static bool build_mounts(struct builder *builder, int index)
{
    int count = builder->plan->mount_count + builder->instance->mount_count;
    for (int i = 0; i < count; i++) {
        const struct job_mount *wanted = instance_mount(builder->plan, index, i);
        bool shown = wanted->access == JOB_OWN_COPY
                         ? show_copy(builder, wanted, i)
                         : show(builder, wanted->from, wanted->to,
                                wanted->access == JOB_READ_ONLY ? READ_ONLY : MOUNT_ATTR_NODEV);
        if (!shown)
            return false;
    }
    return true;
}

static bool build_hidden(struct builder *builder)
{
    const char *const *hidden = builder->plan->hidden;
    for (int i = 0; hidden != NULL && hidden[i] != NULL; i++) {
        if (!guard(builder, hidden[i], true))
            return false;
    }
    return true;
}

static bool enter_root(struct builder *builder)
{
    struct mount_attr change = {.attr_set = MOUNT_ATTR_RDONLY};
    close(builder->old_fd);
    close(builder->source_fd);
    bool done = (builder->is_copied ||
                 mount_setattr(builder->new_fd, "", AT_EMPTY_PATH, &change, sizeof(change)) == 0) &&
                fchdir(builder->new_fd) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 &&
                umount2(".", MNT_DETACH) == 0 && chdir("/") == 0;
    int error_number = errno;
    close(builder->new_fd);
    errno = error_number;
    return !failed(builder, !done, "entering the new root");
}

bool instance_root_build(const struct job_plan *plan, int index, struct instance_message *failure)
{
    struct builder builder = {.plan = plan,
                              .instance = &plan->instances[index],
                              .limits = instance_limits(plan, index),
                              .failure = failure,
                              .old_fd = -1,
                              .source_fd = -1,
                              .new_fd = -1};
    umask(0);
    bool built = leave_root(&builder) && open_roots(&builder) && build_proc(&builder) &&
                 build_sys(&builder) && build_dev(&builder) && build_hidden(&builder) &&
                 build_own(&builder) && build_mounts(&builder, index) && enter_root(&builder);
    umask(022);
    return built;
}
