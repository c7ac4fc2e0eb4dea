/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h: tensors that torch allocates by itself, placed in memory that the ranks of the host
 * share, so that operations on them copy nothing.
 *
 * Only within a scope, on the thread that opened it: the buckets of DistributedDataParallel are
 * made in one. Everything else, in any thread, goes to the allocator that was there before. Memory
 * from an arena holds its group, as that of allocate_tensor does.
 */
#pragma once

#include <c10/core/CPUAllocator.h>

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

    /* Puts it before torch's own. It stays: tensors may resize themselves by it at any time. */
    static void install()
    {
        static auto *const one = new ArenaAllocator(c10::GetCPUAllocator());
        c10::SetCPUAllocator(one, priority);
    }

    c10::DataPtr allocate(size_t bytes) override
    {
        std::shared_ptr<Group> group = scope();
        void *memory = nullptr;
        if (!group || bytes < bytes_min ||
            shoal_alloc(group->handle, bytes, &memory) != SHOAL_OK) /* full: the usual memory */
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

    static void free_block(void *context)
    {
        std::unique_ptr<Block> block(static_cast<Block *>(context));
        shoal_free(block->group->handle, block->memory);
    }

    c10::Allocator *const base_;
};

} // namespace shoal_torch
