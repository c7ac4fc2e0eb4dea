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
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "group.h"

namespace shoal_torch
{

/* What is known of some tensors before their data. */
class TensorKinds
{
  public:
    struct Kind {
        std::vector<int64_t> sizes;
        at::ScalarType type;
        bool requires_grad;
    };

    explicit TensorKinds(
        const std::vector<std::tuple<std::vector<int64_t>, at::ScalarType, bool>> &kinds)
    {
        for (const auto &[sizes, type, requires_grad] : kinds)
            kinds_.push_back({sizes, type, requires_grad});
    }

    size_t size() const
    {
        return kinds_.size();
    }

    const Kind &operator[](size_t index) const
    {
        return kinds_[index];
    }

    /* Whether these tensors are such, and have their data. */
    bool fit(const std::vector<at::Tensor> &tensors) const
    {
        bool fits = tensors.size() == kinds_.size();
        for (size_t i = 0; fits && i < tensors.size(); i++)
            fits = is(tensors[i], kinds_[i]) && has_data(tensors[i]);
        return fits;
    }

    /* Whether these are such tensors, each another one. */
    bool are(const pybind11::tuple &given) const
    {
        bool fits = given.size() == kinds_.size();
        for (size_t i = 0; fits && i < given.size(); i++) {
            PyObject *one = PyTuple_GET_ITEM(given.ptr(), i);
            fits = THPVariable_Check(one) && is(THPVariable_Unpack(one), kinds_[i]);
            for (size_t j = 0; j < i; j++)
                fits = fits && PyTuple_GET_ITEM(given.ptr(), j) != one;
        }
        return fits;
    }

    /* Promises have none. */
    static bool has_data(const at::Tensor &tensor)
    {
        return !tensor.unsafeGetTensorImpl()->is_python_dispatch();
    }

  private:
    static bool is(const at::Tensor &tensor, const Kind &kind)
    {
        return tensor.scalar_type() == kind.type && tensor.sizes() == kind.sizes &&
               tensor.requires_grad() == kind.requires_grad;
    }

    std::vector<Kind> kinds_;
};

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

    /* task: the class of tasks, a tuple; check: raises what a status says, other than SHOAL_OK. */
    TensorPipe(uintptr_t pipe, pybind11::type task, pybind11::function check)
        : line_(std::make_shared<Line>()), task_(std::move(task)), check_(std::move(check))
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

    /* The tensors are copied, one after the other. */
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
            put_now(value, tensor);
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

    /* A view of each of these values; gradients: those that may need one do. */
    std::vector<at::Tensor> views(const std::vector<uint64_t> &values, const TensorKinds &kinds,
                                  bool gradients)
    {
        TORCH_CHECK(values.size() == kinds.size(), "shoal: ", values.size(), " values came for ",
                    kinds.size(), " tensors");
        std::vector<at::Tensor> seen;
        for (size_t i = 0; i < values.size(); i++)
            seen.push_back(view(values[i], kinds[i].sizes, kinds[i].type,
                                gradients && kinds[i].requires_grad));
        return seen;
    }

    /* put_later of each. */
    void put_all(const std::vector<uint64_t> &values, const std::vector<at::Tensor> &tensors)
    {
        TORCH_CHECK(values.size() == tensors.size(), "shoal: ", values.size(), " values for ",
                    tensors.size(), " tensors");
        for (size_t i = 0; i < values.size(); i++)
            put_later(values[i], tensors[i]);
    }

    /* Autograd's backward pass from those results whose numbers are given. Their gradients are the
     * last of these values that a task here needs; the others are released. */
    void backward(const std::vector<uint64_t> &needs, const std::vector<size_t> &given,
                  const std::vector<at::Tensor> &results)
    {
        HANDLE_TH_ERRORS
        TORCH_CHECK(given.size() <= needs.size(), "shoal: fewer values than gradients");
        size_t others = needs.size() - given.size();
        std::vector<at::Tensor> roots, gradients;
        for (size_t i = 0; i < others; i++)
            release(needs[i]);
        for (size_t i = 0; i < given.size(); i++) {
            const at::Tensor &root = results.at(given[i]);
            roots.push_back(root);
            gradients.push_back(
                view(needs[others + i], root.sizes().vec(), root.scalar_type(), false));
        }
        pybind11::gil_scoped_release unlocked;
        torch::autograd::backward(roots, gradients);
        END_HANDLE_TH_ERRORS_PYBIND
    }

    /* Puts the gradient of each tensor whose value is not 0, up to the first that has none, or one
     * without data; gives its number, or how many tensors there are. */
    size_t put_gradients(const std::vector<uint64_t> &values,
                         const std::vector<at::Tensor> &tensors)
    {
        for (size_t i = 0; i < values.size(); i++) {
            if (values[i] == 0)
                continue;
            const at::Tensor &gradient = tensors.at(i).grad();
            if (!gradient.defined() || !TensorKinds::has_data(gradient))
                return i;
            put_later(values[i], gradient);
        }
        return values.size();
    }

    /* A task's fields, in their order. */
    void submit(const pybind11::tuple &fields)
    {
        struct shoal_pipe_task task = SHOAL_PIPE_TASK_INIT;
        task.kind = static_cast<enum shoal_pipe_kind>(fields[0].cast<int>());
        task.rank = fields[1].cast<int>();
        task.microbatch = fields[2].cast<int>();
        task.module = fields[3].cast<int>();
        const pybind11::bytes blob = fields[4];
        const std::string_view text = blob;
        task.blob = text.data();
        task.blob_bytes = text.size();
        const auto needs = fields[5].cast<std::vector<uint64_t>>();
        task.needs = needs.data();
        task.need_count = static_cast<int>(needs.size());
        task.keeps = fields[6].cast<bool>();
        check(shoal_pipe_submit(line_->pipe, &task));
    }

    /* Signals are handled meanwhile. */
    pybind11::object next()
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
        const std::vector<uint64_t> needs(task.needs, task.needs + task.need_count);
        return made_task(pybind11::make_tuple(
            static_cast<int>(task.kind), task.rank, task.microbatch, task.module,
            pybind11::bytes(static_cast<const char *>(task.blob), task.blob_bytes), needs,
            task.keeps != 0));
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

    /* A tuple of that class, without the Python of its constructor. */
    pybind11::object made_task(const pybind11::tuple &fields) const
    {
        const auto arguments = pybind11::make_tuple(fields);
        PyObject *made = PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject *>(task_.ptr()),
                                             arguments.ptr(), nullptr);
        if (!made)
            throw pybind11::error_already_set();
        return pybind11::reinterpret_steal<pybind11::object>(made);
    }

    void put_now(uint64_t value, const at::Tensor &tensor)
    {
        const at::Tensor plain =
            tensor.is_contiguous() ? tensor : tensor.tensor_data().contiguous();
        const struct shoal_pipe_buffer buffer = {plain.const_data_ptr(), plain.nbytes()};
        std::optional<pybind11::gil_scoped_release> unlocked;
        if (buffer.bytes >= unlocked_bytes_min)
            unlocked.emplace();
        Status status = shoal_pipe_put(line_->pipe, value, nullptr, 0, &buffer, 1);
        unlocked.reset();
        check(status);
    }

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
    pybind11::type task_;
    pybind11::function check_;
    std::mutex mutex_; /* of what follows */
    std::condition_variable changed_;
    std::deque<Letter> letters_;
    std::thread thread_;
    bool closing_ = false;
};

} // namespace shoal_torch
