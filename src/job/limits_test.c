/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits_test.c: a group of version 2 with a process of its own hands controllers down when the
 * process has moved to a leaf. Machines that have limits by version 1 often have a tree of version
 * 2 beside it, with the controllers that are left.
 */
#include "job/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/skip.h"

#define PATH_BYTES 512

/* The first word of a file; false if there is none. */
static bool read_word(const char *folder, const char *name, char word[64])
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool found = file != NULL && fscanf(file, "%63s", word) == 1;
    if (file != NULL)
        fclose(file);
    return found;
}

static bool put_word(const char *folder, const char *name, const char *word)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    bool good = file != NULL && fputs(word, file) >= 0;
    return file != NULL && fclose(file) == 0 && good;
}

struct tree {
    const char *mount;
    bool was_enabled; /* the controller, before */
    char folder[PATH_BYTES], controller[64];
};

static void set_controller(const struct tree *tree, char sign)
{
    char text[80];
    snprintf(text, sizeof(text), "%c%s", sign, tree->controller);
    put_word(tree->mount, "cgroup.subtree_control", text);
}

/* A group of version 2 that can have a controller; false: this machine has none to try. */
static bool make_group(struct tree *tree)
{
    static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    char word[64];
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        if (!read_word(mounts[i], "cgroup.controllers", tree->controller))
            continue;
        tree->mount = mounts[i];
        tree->was_enabled = read_word(mounts[i], "cgroup.subtree_control", word);
        set_controller(tree, '+');
        snprintf(tree->folder, PATH_BYTES, "%s/shoal-test-%d", mounts[i], (int)getpid());
        return mkdir(tree->folder, 0755) == 0;
    }
    return false;
}

/* In a child, which leaves the group with its end: 0, or which step failed. */
static int hand_down(const char *folder, const char *controller)
{
    const char *const controllers[] = {controller, NULL};
    char word[64], leaf[PATH_BYTES];
    snprintf(leaf, sizeof(leaf), "%.400s/shoal-service", folder);
    if (!put_word(folder, "cgroup.procs", "0"))
        return 1;
    if (!limits_hand_down(folder, controllers))
        return 2;
    if (!read_word(folder, "cgroup.subtree_control", word) || strcmp(word, controller) != 0)
        return 3;
    if (!read_word(leaf, "cgroup.procs", word) || atoi(word) != (int)getpid())
        return 4;
    return limits_hand_down(folder, controllers) ? 0 : 5;
}

static void service_moves_to_a_leaf(void **state)
{
    struct tree tree = {0};
    char leaf[PATH_BYTES + 16];
    int wait_status = 0;
    (void)state;
    if (!make_group(&tree))
        skip_because("no tree of version 2 in which groups can be made");
    pid_t child = fork();
    if (child == 0)
        _exit(hand_down(tree.folder, tree.controller));
    waitpid(child, &wait_status, 0);
    snprintf(leaf, sizeof(leaf), "%s/shoal-service", tree.folder);
    rmdir(leaf);
    assert_int_equal(rmdir(tree.folder), 0);
    if (!tree.was_enabled)
        set_controller(&tree, '-');
    assert_int_equal(wait_status, 0);
}

static void folder_without_controllers_is_left_alone(void **state)
{
    static const char *const controllers[] = {"memory", NULL};
    char folder[] = "/tmp/shoal-limits-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_false(limits_hand_down(folder, controllers));
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(service_moves_to_a_leaf),
        cmocka_unit_test(folder_without_controllers_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
