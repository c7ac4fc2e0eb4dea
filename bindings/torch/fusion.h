/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fusion.h: a fuse whose tensors are torch's: gradients in, views of their homes out.
 *
 * A gradient whose elements lie as its home's are handed to the library where it is; one of another
 * type or layout is copied home here, and back when the step has ended. Homes are views that hold
 * the fuse, and through it the group: memory goes with the last of them. Python's lock is held but
 * within the library, so that what is noted here needs no lock of its own.
 */
#pragma once

#include "calls.h"

namespace shoal_torch
{

class Fuse : public std::enable_shared_from_this<Fuse>
{
  public:
    struct Wishes {
        uint64_t buffer_bytes; /* 0: the option's */
        enum shoal_compression compression;
        bool error_feedback;
    };

    /* Collective. One gradient of type `type` for each tensor of `like`, in its form; `names` are
     * theirs. */
    Fuse(std::shared_ptr<Group> group, Tensors like, std::vector<std::string> names,
         const std::string &name, at::ScalarType type, const Wishes &wishes)
        : group_(std::move(group)), names_(std::move(names)), type_(type)
    {
        std::vector<uint64_t> counts;
        std::vector<const char *> texts;
        for (size_t i = 0; i < like.size(); i++) {
            forms_.push_back(form_of(like[i]));
            counts.push_back(static_cast<uint64_t>(like[i].numel()));
            texts.push_back(names_.at(i).c_str());
        }
        struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
        TORCH_CHECK_VALUE(shoal_dtype_of(type, &options.dtype),
                          "shoal: no arithmetic on gradients of type ", type);
        options.tensor_count = static_cast<int>(counts.size());
        options.counts = counts.data();
        options.tensor_names = texts.data();
        options.name = name.c_str();
        options.buffer_bytes = wishes.buffer_bytes;
        options.compression = wishes.compression;
        options.error_feedback = wishes.error_feedback;
        call("fusion buffers", [&] { return shoal_fuse_create(group_->handle, &options, &fuse_); });
    }

    Fuse(const Fuse &) = delete;
    Fuse &operator=(const Fuse &) = delete;

    ~Fuse()
    {
        std::optional<pybind11::gil_scoped_release> unlocked;
        if (Py_IsInitialized() && PyGILState_Check())
            unlocked.emplace();
        shoal_fuse_free(fuse_);
    }

    /* The place of a tensor's gradient; it moves once, when the first step ends. */
    at::Tensor home(int tensor)
    {
        const Form &form = forms_.at(tensor);
        void *memory = nullptr;
        check(shoal_fuse_home(fuse_, tensor, &memory), nullptr, "fusion buffers");
        return at::from_blob(
            memory, form.sizes, form.strides, [self = shared_from_this()](void *) {},
            at::TensorOptions().dtype(type_));
    }

    /* The gradient of `tensor` is ready. `back`: the result goes there as well, not only home. */
    void add(int tensor, const at::Tensor &gradient, bool back)
    {
        const Form &form = forms_.at(tensor);
        TORCH_CHECK_VALUE(gradient.layout() == at::kStrided && gradient.device().is_cpu(),
                          "shoal: the gradient of ", names_[tensor], " is ", gradient.layout(),
                          " on ", gradient.device(), "; fusion buffers take dense ones on the CPU");
        void *in = nullptr;
        if (lies_as(gradient, form) || gradient.sizes() != form.sizes)
            in = gradient.data_ptr();
        else
            copy(home(tensor), gradient);
        if (back)
            (in ? lent_ : odd_).emplace_back(tensor, gradient);
        auto count = static_cast<uint64_t>(gradient.numel());
        call("backward",
             [&] { return shoal_fuse_add(fuse_, tensor, in, back ? in : nullptr, count); });
    }

    /* What was not added counts as zeros. */
    void flush()
    {
        call("backward", [&] { return shoal_fuse_flush(fuse_); });
    }

    /* The result of one tensor is at home. */
    void wait(int tensor)
    {
        call("backward", [&] { return shoal_fuse_wait(fuse_, tensor); });
    }

    /* Ends the step: results are at home, and where they were wanted. */
    void finish()
    {
        call("backward", [&] { return shoal_fuse_finish(fuse_); });
        for (const auto &[tensor, gradient] : odd_)
            copy(gradient, home(tensor));
        odd_.clear();
        lent_.clear();
    }

    struct shoal_fuse_counters counters()
    {
        struct shoal_fuse_counters counted = SHOAL_FUSE_COUNTERS_INIT;
        check(shoal_fuse_counters(fuse_, &counted), nullptr, "fusion buffers");
        return counted;
    }

    struct shoal_counters traffic()
    {
        struct shoal_counters counted = SHOAL_COUNTERS_INIT;
        check(shoal_fuse_traffic(fuse_, &counted), nullptr, "fusion buffers");
        return counted;
    }

  private:
    struct Form {
        std::vector<int64_t> sizes, strides;
    };

    static Form form_of(const at::Tensor &like)
    {
        at::IntArrayRef sizes = like.sizes();
        if (like.is_non_overlapping_and_dense())
            return {sizes.vec(), like.strides().vec()};
        auto strides = c10::contiguous_strides(sizes);
        return {sizes.vec(), {strides.begin(), strides.end()}};
    }

    bool lies_as(const at::Tensor &gradient, const Form &form) const
    {
        return gradient.scalar_type() == type_ && gradient.sizes() == form.sizes &&
               gradient.strides() == form.strides && !gradient.is_conj() && !gradient.is_neg() &&
               !gradient.requires_grad();
    }

    static void copy(const at::Tensor &to, const at::Tensor &from)
    {
        at::AutoDispatchBelowADInplaceOrView below_autograd;
        to.copy_(from);
    }

    template <typename Function> static void call(const char *operation, Function function)
    {
        pybind11::gil_scoped_release unlocked;
        check(function(), nullptr, operation);
    }

    std::shared_ptr<Group> group_; /* freed after the fuse */
    std::vector<std::string> names_;
    at::ScalarType type_;
    std::vector<Form> forms_;
    shoal_fuse_t fuse_ = nullptr;

    /* Gradients that results go back to when the step ends: by the library, and by copy(). */
    std::vector<std::pair<int, at::Tensor>> lent_, odd_;
};

} // namespace shoal_torch
