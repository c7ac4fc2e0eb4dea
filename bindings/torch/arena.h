/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h: tensors that torch allocates by itself, placed in memory that the ranks of the host
 * share, so that operations on them copy nothing.
 *
 * Only on the thread that asked for it, in one of two ways. Within a scope all tensors lie there:
 * the buckets of DistributedDataParallel are made in one. Of an expected size all tensors lie there
 * until it is forgotten: FSDP1's gradients, which come from the depths of autograd. Everything
 * else, in any thread, goes to the allocator that was there before. Memory from an arena holds its
 * group, as that of allocate_tensor does.
 */
#pragma once

#include <atomic>
#include <map>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Logging.h>

#include "group.h"

namespace shoal_torch
{

class ArenaAllocator final : public c10::Allocator
{
  public:
    /* The group whose memory this thread's next tensors lie in; nullptr: nobody's. */
    static std::shared_ptr<Group> &scope()
    {
        thread_local std::shared_ptr<Group> group;
        return group;
    }

    /* Sizes in bytes of which this thread's tensors lie in a group's memory as long as it lives. */
    static std::map<size_t, std::weak_ptr<Group>> &expected()
    {
        thread_local std::map<size_t, std::weak_ptr<Group>> sizes;
        return sizes;
    }

    /* Puts it before torch's own. It stays: tensors may resize themselves by it at any time. */
    static void install()
    {
        static auto *const one = new ArenaAllocator(c10::GetCPUAllocator());
        c10::SetCPUAllocator(one, priority);
    }

    c10::DataPtr allocate(size_t bytes) override
    {
        std::shared_ptr<Group> group = bytes < bytes_min ? nullptr : wanted_by(bytes);
        void *memory = nullptr;
        if (!group || !take(*group, bytes, &memory))
            return base_->allocate(bytes);
        return {memory, new Block{std::move(group), memory}, free_block, c10::kCPU};
    }

    /* Of those that have one address for memory and context: not of blocks of an arena. */
    c10::DeleterFnPtr raw_deleter() const override
    {
        return base_->raw_deleter();
    }

    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        base_->copy_data(to, from, bytes);
    }

  private:
    static constexpr uint8_t priority = 1;
    static constexpr size_t bytes_min = 16384; /* smaller ones gain nothing from it */

    struct Block {
        std::shared_ptr<Group> group;
        void *memory;
    };

    explicit ArenaAllocator(c10::Allocator *base) : base_(base)
    {
    }

    /* False if there is none: then the usual memory does, which is said once. Children made by fork
     * have none of their own. */
    static bool take(const Group &group, size_t bytes, void **out)
    {
        static std::atomic_flag said = ATOMIC_FLAG_INIT;
        enum shoal_status status = shoal_alloc(group.handle, bytes, out);
        if (status != SHOAL_OK && status != SHOAL_ERR_STATE && !said.test_and_set())
            LOG(WARNING) << "shoal: rank " << shoal_group_rank(group.handle) << ": a tensor of "
                         << bytes << " bytes lies in private memory, where operations on it are "
                         << "staged: " << shoal_last_error(group.handle)
                         << " (said once; there may be more of them)";
        return status == SHOAL_OK;
    }

    static std::shared_ptr<Group> wanted_by(size_t bytes)
    {
        if (scope())
            return scope();
        auto found = expected().find(bytes);
        return found == expected().end() ? nullptr : found->second.lock();
    }

    static void free_block(void *context)
    {
        std::unique_ptr<Block> block(static_cast<Block *>(context));
        shoal_free(block->group->handle, block->memory);
    }

    c10::Allocator *const base_;
};

} // namespace shoal_torch
