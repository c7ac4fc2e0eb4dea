/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h: errors of the library as torch's exceptions, and groups that free themselves.
 *
 * The default group of torch meets through the store that torch hands over. Later groups whose
 * ranks are all in it are subsets of it, which opens no connection and sends no message.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/exception.h>
#include <torch/csrc/utils/pybind.h>

#include "shoal.h"

namespace shoal_torch
{

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/* ---- signals -------------------------------------------------------------------------------- */

/* What a handler of Python raised during a call of the library on this thread. */
inline thread_local std::exception_ptr raised_by_handler;

/* The library's question whether a call that waits shall end. Python runs handlers on its main
 * thread only, and while that is in the library only here. */
inline int interrupted(void *)
{
    pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0)
        return 0;
    raised_by_handler = std::make_exception_ptr(pybind11::error_already_set());
    return 1;
}

inline void rethrow_interruption()
{
    if (raised_by_handler)
        std::rethrow_exception(std::exchange(raised_by_handler, nullptr));
}

/* ---- errors ---------------------------------------------------------------------------------- */

template <typename Error> std::exception_ptr make_error(std::string text)
{
    return std::make_exception_ptr(Error({__func__, __FILE__, __LINE__}, std::move(text)));
}

/* The exception for a status that this thread has just got from a call on `group`. */
inline std::exception_ptr error_of(enum shoal_status status, shoal_group_t group,
                                   const char *operation)
{
    std::string cause = shoal_last_error(group);
    std::string text = c10::str("shoal: ", operation, ": ", cause.empty() ? "failed" : cause, " [",
                                shoal_status_name(status), "]");
    switch (status) {
    case SHOAL_ERR_ARGUMENT:
    case SHOAL_ERR_UNSUPPORTED:
    case SHOAL_ERR_OPTION: return make_error<c10::ValueError>(std::move(text));
    case SHOAL_ERR_MEMORY: return make_error<c10::OutOfMemoryError>(std::move(text));
    case SHOAL_ERR_TIMEOUT: return make_error<c10d::TimeoutError>(std::move(text));
    default: return make_error<c10::DistBackendError>(std::move(text));
    }
}

inline void check(enum shoal_status status, shoal_group_t group, const char *operation)
{
    if (status == SHOAL_OK)
        return;
    rethrow_interruption();
    std::rethrow_exception(error_of(status, group, operation));
}

/* ---- groups ---------------------------------------------------------------------------------- */

struct Group {
    shoal_group_t handle = nullptr;
    std::shared_ptr<Group> parent; /* its connections are used: freed after this one */
    std::vector<int64_t> members;  /* global rank of each rank of this group */
    Milliseconds timeout{0};
    std::mutex timeout_mutex; /* while one operation is started with another timeout */

    Group() = default;
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    /* The library has logged why when a group could not be left in peace; nobody is left to tell.
     * Others may be in a call of it, and ask for Python's lock there. */
    ~Group()
    {
        std::optional<pybind11::gil_scoped_release> unlocked;
        if (Py_IsInitialized() && PyGILState_Check())
            unlocked.emplace();
        shoal_group_free(handle);
    }

    void set_timeout(Milliseconds value)
    {
        timeout = std::max(value, Milliseconds(1));
        check(shoal_group_set_timeout(handle, timeout.count()), handle, "set_timeout");
    }
};

/* The group of all ranks, from which later groups are taken without opening a connection. */
inline std::mutex world_mutex;
inline std::weak_ptr<Group> world;

/* torch's store as shoal.h wants it. */
struct StoreUser {
    c10::intrusive_ptr<c10d::Store> store;
    std::string error;
};

inline int store_set(void *user, const char *key, const void *value, size_t bytes)
{
    auto *self = static_cast<StoreUser *>(user);
    auto *first = static_cast<const uint8_t *>(value);
    try {
        self->store->set(key, std::vector<uint8_t>(first, first + bytes));
        return 0;
    } catch (const std::exception &error) {
        self->error = error.what();
        return 2;
    }
}

inline int store_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
                     int64_t timeout_ms)
{
    auto *self = static_cast<StoreUser *>(user);
    auto deadline = Clock::now() + Milliseconds(timeout_ms);
    try {
        self->store->wait({key}, Milliseconds(std::max<int64_t>(timeout_ms, 1)));
        std::vector<uint8_t> found = self->store->get(key);
        std::copy_n(found.data(), std::min(found.size(), capacity), static_cast<uint8_t *>(value));
        *bytes = found.size();
        return 0;
    } catch (const std::exception &error) {
        if (Clock::now() >= deadline)
            return 1;
        self->error = error.what();
        return 2;
    }
}

inline void create_by_store(Group &group, const c10d::DistributedBackendOptions &options,
                            const char *name)
{
    StoreUser user{options.store, ""};
    struct shoal_store store = {sizeof(store), &user, store_set, store_get};
    struct shoal_group_options wanted = SHOAL_GROUP_OPTIONS_INIT;
    wanted.rank = options.group_rank;
    wanted.size = options.group_size;
    wanted.user_store = &store;
    wanted.name = name;
    wanted.timeout_ms = group.timeout.count();
    wanted.interrupted = interrupted;
    enum shoal_status status = shoal_group_create(&wanted, &group.handle);
    if (status != SHOAL_OK) {
        std::string what = "init_process_group";
        if (!user.error.empty())
            what += " (torch's store said: " + user.error + ")";
        std::rethrow_exception(error_of(status, nullptr, what.c_str()));
    }
}

/* Ranks of `members` in `parent`, or an empty list if one is not there. */
inline std::vector<int> ranks_in(const Group &parent, const std::vector<int64_t> &members)
{
    std::vector<int> ranks;
    for (int64_t member : members) {
        auto found = std::find(parent.members.begin(), parent.members.end(), member);
        if (found == parent.members.end())
            return {};
        ranks.push_back(static_cast<int>(found - parent.members.begin()));
    }
    return ranks;
}

inline std::shared_ptr<Group> subset(const std::shared_ptr<Group> &parent,
                                     const std::vector<int> &ranks, Milliseconds timeout,
                                     const std::string &name)
{
    auto group = std::make_shared<Group>();
    group->parent = parent;
    for (int rank : ranks)
        group->members.push_back(parent->members.at(rank));
    check(shoal_group_subset(parent->handle, ranks.data(), static_cast<int>(ranks.size()),
                             name.c_str(), &group->handle),
          parent->handle, "new_group");
    group->set_timeout(timeout);
    return group;
}

/* The default group has an empty list of global ranks, and always meets through the store. */
inline std::shared_ptr<Group> join(const c10d::DistributedBackendOptions &options)
{
    auto timeout =
        std::max(std::chrono::duration_cast<Milliseconds>(options.timeout), Milliseconds(1));
    bool is_default = options.global_ranks_in_group.empty();
    if (!is_default) {
        std::unique_lock<std::mutex> lock(world_mutex);
        std::shared_ptr<Group> parent = world.lock();
        lock.unlock();
        if (parent) {
            std::vector<int> ranks = ranks_in(*parent, options.global_ranks_in_group);
            if (!ranks.empty())
                return subset(parent, ranks, timeout, options.group_id);
        }
    }
    auto group = std::make_shared<Group>();
    group->timeout = timeout;
    group->members = options.global_ranks_in_group;
    for (int rank = 0; is_default && rank < options.group_size; rank++)
        group->members.push_back(rank);
    create_by_store(*group, options, is_default ? "world" : options.group_id.c_str());
    std::lock_guard<std::mutex> lock(world_mutex);
    if (is_default || world.expired())
        world = group;
    return group;
}

} // namespace shoal_torch
