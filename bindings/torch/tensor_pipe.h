/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_pipe.h: the calls of a pipe that every task makes, with torch's tensors for data.
 *
 * Compiled, because they lie between two tasks of a stage, where the caches are cold: what Python
 * does there in ten microseconds then takes a hundred. A value of one tensor is seen as a tensor
 * over the pipe's memory, which lets go of it at its end. Large tensors are put by a thread of
 * their own, so that the stage goes on with its next task while they are copied; until then the
 * pipe holds them, and nobody may change them, which is checked.
 *
 * Views and promises may outlive the pipe: they then do nothing.
 */
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include "group.h"

namespace shoal_torch
{

class TensorPipe
{
    /* The pipe, as long as it is there. */
    struct Line {
        std::mutex mutex;
        shoal_pipe_t pipe;

        template <typename Function> void use(const Function &function)
        {
            std::lock_guard<std::mutex> locked(mutex);
            if (pipe)
                function(pipe);
        }
    };
    using Status = enum shoal_status;

  public:
    /* A value that this rank has promised; dropped at its end. */
    class Promised
    {
      public:
        Promised(std::shared_ptr<Line> line, uint64_t value) : value(value), line_(std::move(line))
        {
        }
        Promised(const Promised &) = delete;
        Promised &operator=(const Promised &) = delete;
        ~Promised()
        {
            line_->use([this](shoal_pipe_t pipe) { shoal_pipe_drop(pipe, value); });
        }

        const uint64_t value;

      private:
        std::shared_ptr<Line> line_;
    };

    /* check: raises what a status says, other than SHOAL_OK. */
    TensorPipe(uintptr_t pipe, pybind11::function check)
        : line_(std::make_shared<Line>()), check_(std::move(check))
    {
        line_->pipe = reinterpret_cast<shoal_pipe_t>(pipe);
    }
    TensorPipe(const TensorPipe &) = delete;
    TensorPipe &operator=(const TensorPipe &) = delete;
    ~TensorPipe()
    {
        close();
    }

    /* Before the pipe is freed: all that was to be put has been. */
    void close()
    {
        pybind11::gil_scoped_release unlocked;
        {
            std::lock_guard<std::mutex> locked(mutex_);
            closing_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable())
            thread_.join();
        std::lock_guard<std::mutex> locked(line_->mutex);
        line_->pipe = nullptr;
    }

    uint64_t promise(int home)
    {
        uint64_t value = 0;
        check(shoal_pipe_promise(line_->pipe, home, &value));
        return value;
    }

    std::unique_ptr<Promised> promised(int home)
    {
        return std::make_unique<Promised>(line_, promise(home));
    }

    void drop(uint64_t value)
    {
        check(shoal_pipe_drop(line_->pipe, value));
    }

    void release(uint64_t value)
    {
        check(shoal_pipe_release(line_->pipe, value));
    }

    void put(uint64_t value, const std::vector<at::Tensor> &tensors, const std::string &descriptor)
    {
        Letter letter(value, tensors, descriptor);
        Status status = SHOAL_OK;
        if (letter.bytes < unlocked_bytes_min) {
            status = letter.put(line_->pipe);
        } else {
            pybind11::gil_scoped_release unlocked;
            status = letter.put(line_->pipe);
        }
        check(status);
    }

    /* The same, maybe later: until then the tensor must stay as it is, and the next one waits. What
     * goes wrong then breaks the pipe. */
    void put_later(uint64_t value, const at::Tensor &tensor)
    {
        if (tensor.nbytes() < later_bytes_min) {
            put(value, {tensor}, "");
            return;
        }
        flush();
        std::unique_lock<std::mutex> locked(mutex_);
        letters_.emplace_back(value, std::vector<at::Tensor>{tensor}, "");
        if (!thread_.joinable())
            thread_ = std::thread([this] { put_letters(); });
        locked.unlock();
        changed_.notify_all();
    }

    /* All that was to be put later has been. */
    void flush()
    {
        pybind11::gil_scoped_release unlocked;
        std::unique_lock<std::mutex> locked(mutex_);
        changed_.wait(locked, [this] { return letters_.empty(); });
    }

    /* Of a value of one tensor that a task here needs; it is released with the tensor. */
    at::Tensor view(uint64_t value, const std::vector<int64_t> &sizes, at::ScalarType type,
                    bool requires_grad)
    {
        struct shoal_pipe_value found = SHOAL_PIPE_VALUE_INIT;
        check(shoal_pipe_value(line_->pipe, value, &found));
        at::TensorOptions options = at::TensorOptions().dtype(type);
        const struct shoal_pipe_buffer one =
            found.buffer_count > 0 ? found.buffers[0] : shoal_pipe_buffer{nullptr, 0};
        int64_t count = c10::multiply_integers(sizes);
        TORCH_CHECK(one.bytes == static_cast<uint64_t>(count) * c10::elementSize(type),
                    "shoal: a value of ", one.bytes, " bytes came for a tensor of ", count, " ",
                    type);
        auto let_go = [line = line_, value](void *) {
            line->use([value](shoal_pipe_t pipe) { shoal_pipe_release(pipe, value); });
        };
        if (count == 0)
            let_go(nullptr);
        at::Tensor seen = count == 0
                              ? at::empty(sizes, options)
                              : at::from_blob(const_cast<void *>(one.data), sizes, let_go, options);
        return requires_grad ? seen.set_requires_grad(true) : seen;
    }

    void submit(int kind, int rank, int microbatch, int module, const std::string &blob,
                const std::vector<uint64_t> &needs, bool keeps)
    {
        struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
        task.rank = rank;
        task.kind = static_cast<enum shoal_pipe_kind>(kind);
        task.module = module;
        task.microbatch = microbatch;
        task.blob = blob.data();
        task.blob_bytes = blob.size();
        task.needs = needs.data();
        task.need_count = static_cast<int>(needs.size());
        task.keeps = keeps;
        check(shoal_pipe_submit(line_->pipe, &task));
    }

    /* Kind, rank, microbatch, module, blob, needs. Signals are handled meanwhile. */
    pybind11::tuple next()
    {
        struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
        Status status = SHOAL_IN_PROGRESS;
        while (status == SHOAL_IN_PROGRESS) {
            if (PyErr_CheckSignals() != 0)
                throw pybind11::error_already_set();
            pybind11::gil_scoped_release unlocked;
            status = shoal_pipe_next(line_->pipe, look_ms, &task);
        }
        check(status);
        std::vector<uint64_t> needs(task.needs, task.needs + task.need_count);
        return pybind11::make_tuple(
            static_cast<int>(task.kind), task.rank, task.microbatch, task.module,
            pybind11::bytes(static_cast<const char *>(task.blob), task.blob_bytes), needs);
    }

  private:
    static constexpr uint64_t unlocked_bytes_min = 65536;
    static constexpr uint64_t later_bytes_min = UINT64_C(1) << 20; /* two switches of threads */
    static constexpr int64_t look_ms = 100; /* between two looks at signals */

    /* A value to be put. The tensors have no graph, and the counts of what changed them. */
    struct Letter {
        Letter(uint64_t value, const std::vector<at::Tensor> &given, std::string descriptor)
            : value(value), descriptor(std::move(descriptor))
        {
            for (const at::Tensor &one : given) {
                counts.push_back(one.unsafeGetTensorImpl()->version_counter());
                before.push_back(count_of(counts.back()));
                tensors.push_back(one.tensor_data().contiguous());
                buffers.push_back({tensors.back().const_data_ptr(), tensors.back().nbytes()});
                bytes += tensors.back().nbytes();
            }
        }

        Status put(shoal_pipe_t pipe) const
        {
            return shoal_pipe_put(pipe, value, descriptor.data(), descriptor.size(), buffers.data(),
                                  static_cast<int>(buffers.size()));
        }

        bool was_changed() const
        {
            for (size_t i = 0; i < counts.size(); i++)
                if (count_of(counts[i]) != before[i])
                    return true;
            return false;
        }

        static uint32_t count_of(const c10::VariableVersion &counter)
        {
            return counter.enabled() ? counter.current_version() : 0;
        }

        uint64_t value, bytes = 0;
        std::string descriptor;
        std::vector<at::Tensor> tensors;
        std::vector<c10::VariableVersion> counts;
        std::vector<uint32_t> before;
        std::vector<struct shoal_pipe_buffer> buffers;
    };

    void check(Status status)
    {
        if (status != SHOAL_OK)
            check_(static_cast<int>(status));
    }

    /* The thread's. A letter stays in the list until it is put. */
    void put_letters()
    {
        for (;;) {
            std::unique_lock<std::mutex> locked(mutex_);
            changed_.wait(locked, [this] { return closing_ || !letters_.empty(); });
            if (letters_.empty())
                return;
            Letter &letter = letters_.front();
            locked.unlock();
            put_checked(letter);
            locked.lock();
            Letter done = std::move(letter); /* its tensors end without the lock */
            letters_.pop_front();
            changed_.notify_all();
            locked.unlock();
        }
    }

    void put_checked(const Letter &letter)
    {
        Status status = letter.put(line_->pipe);
        if (letter.was_changed())
            shoal_pipe_abort(line_->pipe,
                             "a result was changed in its place while it was sent: let the module "
                             "return a clone of what it changes later");
        else if (status != SHOAL_OK)
            shoal_pipe_abort(line_->pipe, "a value could not be put");
    }

    std::shared_ptr<Line> line_;
    pybind11::function check_;
    std::mutex mutex_; /* of what follows */
    std::condition_variable changed_;
    std::deque<Letter> letters_;
    std::thread thread_;
    bool closing_ = false;
};

} // namespace shoal_torch
