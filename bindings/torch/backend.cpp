/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.cpp: torch.distributed's Backend for CPU tensors over shoal.h, as a Python module.
 *
 * C++ only because c10d is; everything that is not a matter of tensors happens in the library. A
 * caller who would wait anyway (asyncOp == false) gets no request: the library's blocking form runs
 * on its thread, which is much faster for small tensors.
 */
#include <torch/csrc/utils/pybind.h>

#include "arena.h"
#include "calls.h"
#include "fusion.h"
#include "tensor_pipe.h"

namespace shoal_torch
{

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr int monitored_barrier_tag = INT32_MAX; /* users' tags are smaller */

/* What torch says of an operation. */
struct Request {
    c10d::OpType type;
    const char *title; /* "shoal:all_reduce": the profiler's name */
    bool asynchronous;
    Milliseconds timeout;
};

class ShoalBackend : public c10d::Backend
{
  public:
    ShoalBackend(std::shared_ptr<Group> group, int rank, int size)
        : Backend(rank, size), group_(std::move(group)),
          options_(c10::make_intrusive<Options>("shoal", group_->timeout))
    {
        options_->global_ranks_in_group.assign(group_->members.begin(), group_->members.end());
        init();
    }

    const std::string getBackendName() const override
    {
        return "shoal";
    }

    c10::intrusive_ptr<Options> getBackendOptions() override
    {
        return options_;
    }

    bool supportsSplitting() const override
    {
        return true;
    }

    bool supportsCoalescing() const override
    {
        return true;
    }

    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }

    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override
    {
        const at::Tensor &tensor = only(tensors, "broadcast");
        int root = static_cast<int>(options.rootRank);
        return run({c10d::OpType::BROADCAST, "shoal:broadcast", options.asyncOp, options.timeout},
                   tensors, {broadcast_call(tensor, root, root == rank_)});
    }

    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override
    {
        const at::Tensor &tensor = only(tensors, "all_reduce");
        return run({c10d::OpType::ALLREDUCE, "shoal:all_reduce", options.asyncOp, options.timeout},
                   tensors, {allreduce_call(tensor, options.reduceOp)});
    }

    /* Tensors of one type travel as one. */
    WorkPointer allreduce_coalesced(Tensors &tensors,
                                    const c10d::AllreduceCoalescedOptions &options) override
    {
        std::vector<Call> calls;
        for (size_t first = 0; first < tensors.size();) {
            size_t last = first;
            while (last < tensors.size() &&
                   tensors[last].scalar_type() == tensors[first].scalar_type())
                last++;
            Tensors alike(tensors.begin() + first, tensors.begin() + last);
            calls.push_back(allreduce_packed_call(alike, options.reduceOp));
            first = last;
        }
        return run({c10d::OpType::ALLREDUCE_COALESCED, "shoal:all_reduce_coalesced",
                    options.asyncOp, options.timeout},
                   tensors, std::move(calls));
    }

    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options) override
    {
        const at::Tensor &tensor = only(tensors, "reduce");
        int root = static_cast<int>(options.rootRank);
        return run({c10d::OpType::REDUCE, "shoal:reduce", options.asyncOp, options.timeout},
                   tensors, {reduce_call(tensor, options.reduceOp, root, root == rank_)});
    }

    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) override
    {
        const Tensors &list = only(outputs, "all_gather");
        const at::Tensor &input = only(inputs, "all_gather");
        return run({c10d::OpType::ALLGATHER, "shoal:all_gather", options.asyncOp, options.timeout},
                   list, {allgather_list_call(list, input, rank_, size_)});
    }

    WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input,
                                const c10d::AllgatherOptions &options) override
    {
        return run({c10d::OpType::_ALLGATHER_BASE, "shoal:_all_gather_base", options.asyncOp,
                    options.timeout},
                   {output}, {allgather_call(output, input, size_)});
    }

    /* outputs[rank][i] is what the rank gave as input i. */
    WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) override
    {
        const char *name = "all_gather_coalesced";
        Tensors results;
        std::vector<Call> calls;
        for (size_t i = 0; i < inputs.size(); i++) {
            check_tensor(inputs[i], name);
            Tensors list;
            for (const Tensors &of_rank : outputs) {
                TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "shoal: ", name, ": ",
                                  of_rank.size(), " outputs for ", inputs.size(), " inputs");
                list.push_back(of_rank[i]);
                results.push_back(of_rank[i]);
            }
            calls.push_back(allgather_list_call(list, inputs[i], rank_, size_));
        }
        return run({c10d::OpType::ALLGATHER_COALESCED, "shoal:all_gather_coalesced",
                    options.asyncOp, options.timeout},
                   results, std::move(calls));
    }

    WorkPointer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::AllgatherOptions &options) override
    {
        check_pairs(outputs, inputs, "all_gather_into_tensor_coalesced");
        std::vector<Call> calls;
        for (size_t i = 0; i < inputs.size(); i++)
            calls.push_back(allgather_call(outputs[i], inputs[i], size_));
        return run({c10d::OpType::COALESCED, "shoal:all_gather_into_tensor_coalesced",
                    options.asyncOp, options.timeout},
                   outputs, std::move(calls));
    }

    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &options) override
    {
        int root = static_cast<int>(options.rootRank);
        const Tensors list = rank_ == root ? only(outputs, "gather") : Tensors();
        const at::Tensor &input = only(inputs, "gather");
        return run({c10d::OpType::GATHER, "shoal:gather", options.asyncOp, options.timeout}, list,
                   {gather_call(list, input, root, rank_, size_)});
    }

    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &options) override
    {
        int root = static_cast<int>(options.rootRank);
        const Tensors list = rank_ == root ? only(inputs, "scatter") : Tensors();
        const at::Tensor &output = only(outputs, "scatter");
        return run({c10d::OpType::SCATTER, "shoal:scatter", options.asyncOp, options.timeout},
                   outputs, {scatter_call(output, list, root, rank_, size_)});
    }

    WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &options) override
    {
        const at::Tensor &output = only(outputs, "reduce_scatter");
        const Tensors &list = only(inputs, "reduce_scatter");
        return run({c10d::OpType::REDUCE_SCATTER, "shoal:reduce_scatter", options.asyncOp,
                    options.timeout},
                   outputs,
                   {reduce_scatter_list_call(output, list, options.reduceOp, rank_, size_)});
    }

    WorkPointer _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                     const c10d::ReduceScatterOptions &options) override
    {
        return run({c10d::OpType::_REDUCE_SCATTER_BASE, "shoal:_reduce_scatter_base",
                    options.asyncOp, options.timeout},
                   {output}, {reduce_scatter_call(output, input, options.reduceOp, size_)});
    }

    WorkPointer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) override
    {
        check_pairs(outputs, inputs, "reduce_scatter_tensor_coalesced");
        std::vector<Call> calls;
        for (size_t i = 0; i < inputs.size(); i++)
            calls.push_back(reduce_scatter_call(outputs[i], inputs[i], options.reduceOp, size_));
        return run({c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                    "shoal:reduce_scatter_tensor_coalesced", options.asyncOp, options.timeout},
                   outputs, std::move(calls));
    }

    WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input,
                              std::vector<int64_t> &output_splits,
                              std::vector<int64_t> &input_splits,
                              const c10d::AllToAllOptions &options) override
    {
        return run({c10d::OpType::ALLTOALL_BASE, "shoal:all_to_all_single", options.asyncOp,
                    options.timeout},
                   {output}, {alltoall_call(output, input, output_splits, input_splits, size_)});
    }

    WorkPointer alltoall(Tensors &outputs, Tensors &inputs,
                         const c10d::AllToAllOptions &options) override
    {
        return run({c10d::OpType::ALLTOALL, "shoal:all_to_all", options.asyncOp, options.timeout},
                   outputs, {alltoall_list_call(outputs, inputs, size_)});
    }

    WorkPointer send(Tensors &tensors, int destination, int tag) override
    {
        check_tag(tag, "send");
        return send_message(tensors, destination, tag);
    }

    WorkPointer recv(Tensors &tensors, int source, int tag) override
    {
        check_tag(tag, "recv");
        return receive(c10d::OpType::RECV, "shoal:recv", tensors, source, tag);
    }

    WorkPointer recvAnysource(Tensors &tensors, int tag) override
    {
        check_tag(tag, "recv");
        return receive(c10d::OpType::RECVANYSOURCE, "shoal:recv_any_source", tensors,
                       SHOAL_ANY_SOURCE, tag);
    }

    WorkPointer barrier(const c10d::BarrierOptions &options) override
    {
        return run({c10d::OpType::BARRIER, "shoal:barrier", options.asyncOp, options.timeout}, {},
                   {barrier_call()});
    }

    void monitoredBarrier(const c10d::BarrierOptions &options, bool) override;

    /* Operations between the two are started as they come; endCoalescing's work is all of them. */
    void startCoalescing() override
    {
        coalescing_ = true;
    }

    WorkPointer endCoalescing() override
    {
        coalescing_ = false;
        auto work =
            c10::make_intrusive<ShoalWork>(group_, c10d::OpType::COALESCED, "shoal:coalesced",
                                           sequence_, std::move(coalesced_results_));
        for (auto &operation : coalesced_)
            work->add(std::move(operation));
        coalesced_.clear();
        coalesced_results_.clear();
        return work;
    }

    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override
    {
        auto found = std::find(ranks.begin(), ranks.end(), rank_);
        if (found == ranks.end())
            return nullptr;
        auto group = subset(use(), ranks, options ? options->timeout : group_->timeout,
                            options ? options->group_name : "split");
        return c10::make_intrusive<ShoalBackend>(group, static_cast<int>(found - ranks.begin()),
                                                 static_cast<int>(ranks.size()));
    }

    void setTimeout(Milliseconds timeout) override
    {
        use()->set_timeout(timeout);
        options_->timeout = timeout;
    }

    void setSequenceNumberForGroup() override
    {
        sequence_ = 0;
    }

    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }

    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, "shoal: registerOnCompletionHook is not supported; use the work's future");
    }

    void waitForPendingWorks() override;

    /* Durations are always measured. */
    void enableCollectivesTiming() override
    {
    }

    c10d::ErrorType getError() override
    {
        switch (shoal_group_health(use()->handle)) {
        case SHOAL_OK: return c10d::ErrorType::SUCCESS;
        case SHOAL_ERR_TIMEOUT: return c10d::ErrorType::TIMEOUT;
        case SHOAL_ERR_PEER_LOST:
        case SHOAL_ERR_ABORTED: return c10d::ErrorType::REMOTE_ERROR;
        default: return c10d::ErrorType::COMM_ERROR;
        }
    }

    /* Memory that the ranks of this host share, so that operations on it copy nothing. */
    at::Tensor allocateTensor(long size, at::TensorOptions options) override
    {
        std::shared_ptr<Group> group = use();
        auto itemsize = static_cast<size_t>(options.dtype().itemsize());
        if (size == 0)
            return at::empty({0}, options);
        void *memory = nullptr;
        check(shoal_alloc(group->handle, static_cast<size_t>(size) * itemsize, &memory),
              group->handle, "allocate_tensor");
        return at::from_blob(
            memory, {size}, [group](void *freed) { shoal_free(group->handle, freed); }, options);
    }

    struct shoal_counters counters()
    {
        struct shoal_counters counted = SHOAL_COUNTERS_INIT;
        std::shared_ptr<Group> group = use();
        check(shoal_group_counters(group->handle, &counted), group->handle, "counters");
        return counted;
    }

    /* This thread's next tensors lie in memory that the ranks of the host share. */
    void enter_arena()
    {
        ArenaAllocator::install();
        ArenaAllocator::scope() = use();
    }

    /* Until they are forgotten, so do those of one of these sizes in bytes. */
    void expect(const std::vector<size_t> &sizes)
    {
        ArenaAllocator::install();
        for (size_t bytes : sizes)
            ArenaAllocator::expected()[bytes] = use();
    }

    /* An error after shutdown. */
    std::shared_ptr<Group> use()
    {
        TORCH_CHECK(group_, "shoal: this process group was shut down");
        return group_;
    }

    void abort() override
    {
        if (group_)
            shoal_group_abort(group_->handle, "the process group was aborted");
    }

    /* Leaves the group, as soon as nothing else (a sub-group, a work) holds it. */
    void shutdown() override
    {
        std::shared_ptr<Group> left;
        left.swap(group_);
        std::lock_guard<std::mutex> lock(world_mutex);
        if (left && world.lock() == left)
            world.reset();
    }

  private:
    static void check_pairs(const Tensors &outputs, const Tensors &inputs, const char *operation)
    {
        TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "shoal: ", operation, ": ",
                          outputs.size(), " outputs for ", inputs.size(), " inputs");
    }

    static void check_tag(int tag, const char *operation)
    {
        TORCH_CHECK_VALUE(tag >= 0 && tag < monitored_barrier_tag, "shoal: ", operation,
                          ": tag is ", tag, "; tags are 0 to 2147483646");
    }

    WorkPointer send_message(Tensors &tensors, int destination, int tag)
    {
        const at::Tensor &tensor = only(tensors, "send");
        return run({c10d::OpType::SEND, "shoal:send", true, c10d::kUnsetTimeout}, tensors,
                   {send_call(tensor, destination, tag)});
    }

    WorkPointer receive(c10d::OpType type, const char *title, Tensors &tensors, int source, int tag)
    {
        auto info = std::make_shared<struct shoal_recv_info>();
        const at::Tensor &tensor = only(tensors, "recv");
        auto work = run({type, title, true, c10d::kUnsetTimeout}, tensors,
                        {receive_call(tensor, source, tag, info)});
        if (work)
            static_cast<ShoalWork &>(*work).set_source(std::move(info));
        return work;
    }

    WorkPointer run(const Request &request, const Tensors &results, std::vector<Call> calls);
    void remember(const Operations &operations);
    void monitor(const Group &group, Milliseconds timeout);
    WorkPointer meet(int rank, bool sends);

    std::shared_ptr<Group> group_; /* nullptr after shutdown */
    c10::intrusive_ptr<Options> options_;
    std::atomic<uint64_t> sequence_{0};

    /* By one thread at a time, as the calls of a group must be. */
    bool coalescing_ = false;
    Operations coalesced_;
    Tensors coalesced_results_;

    std::mutex pending_mutex_;
    std::vector<std::weak_ptr<Operation>> pending_;
    size_t pending_sweep_ = 64;
};

/* Starts the calls of one operation of torch: on this thread where the caller waits anyway, else as
 * requests. */
WorkPointer ShoalBackend::run(const Request &request, const Tensors &results,
                              std::vector<Call> calls)
{
    std::shared_ptr<Group> group = use();
    auto work =
        c10::make_intrusive<ShoalWork>(group, request.type, request.title, ++sequence_, results);
    const char *name = request.title + sizeof("shoal:") - 1;
    bool own_time = request.timeout.count() > 0 && request.timeout != group->timeout;
    if (!request.asynchronous && !coalescing_ && !own_time) {
        for (const Call &call : calls) {
            check(call.start(group->handle, nullptr), group->handle, name);
            run_unpack(call);
        }
        work->settle();
        return work;
    }
    Operations started;
    for (Call &call : calls) {
        auto operation = std::make_shared<Operation>(group, name, std::move(call));
        operation->start(request.timeout);
        work->add(operation);
        started.push_back(std::move(operation));
    }
    remember(started);
    if (!coalescing_)
        return work;
    work->take_operations();
    std::move(started.begin(), started.end(), std::back_inserter(coalesced_));
    coalesced_results_.insert(coalesced_results_.end(), results.begin(), results.end());
    return work;
}

/* For waitForPendingWorks. The list is swept when it has doubled. */
void ShoalBackend::remember(const Operations &operations)
{
    std::lock_guard<std::mutex> lock(pending_mutex_);
    if (pending_.size() >= pending_sweep_) {
        pending_.erase(std::remove_if(pending_.begin(), pending_.end(),
                                      [](const auto &operation) { return operation.expired(); }),
                       pending_.end());
        pending_sweep_ = std::max<size_t>(64, 2 * pending_.size());
    }
    pending_.insert(pending_.end(), operations.begin(), operations.end());
}

void ShoalBackend::waitForPendingWorks()
{
    std::vector<std::weak_ptr<Operation>> pending;
    {
        std::lock_guard<std::mutex> lock(pending_mutex_);
        pending.swap(pending_);
    }
    for (const auto &weak : pending) {
        if (std::shared_ptr<Operation> operation = weak.lock())
            operation->wait(own_deadline);
    }
}

/* Rank 0 hears from every rank and then lets all go. Those that did not come in time are named, and
 * the group is broken with that text, which is then what the waiting ranks report. They wait a
 * little longer than rank 0, so that its text arrives before their time is up. */
void ShoalBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool)
{
    std::shared_ptr<Group> group = use();
    Milliseconds timeout = options.timeout.count() > 0 ? options.timeout : group->timeout;
    if (rank_ == 0)
        return monitor(*group, timeout);
    auto grace = std::max(Milliseconds(1000), timeout / 10);
    meet(0, true)->wait(timeout);
    try {
        meet(0, false)->wait(timeout + grace);
    } catch (const c10d::TimeoutError &) {
        C10D_THROW_ERROR(TimeoutError, "shoal: monitored_barrier: rank ", group->members[0],
                         " did not come within ", timeout.count(), " ms");
    }
}

void ShoalBackend::monitor(const Group &group, Milliseconds timeout)
{
    auto deadline = Clock::now() + timeout;
    std::vector<WorkPointer> arrivals;
    for (int rank = 1; rank < size_; rank++)
        arrivals.push_back(meet(rank, false));
    std::string missing;
    for (int rank = 1; rank < size_; rank++) {
        auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
        try {
            arrivals[rank - 1]->wait(std::max(left, Milliseconds(1)));
        } catch (const c10d::TimeoutError &) {
            missing += c10::str(missing.empty() ? "" : ", ", group.members[rank]);
        }
    }
    if (!missing.empty()) {
        std::string text = c10::str("monitored_barrier: rank(s) ", missing, " did not come within ",
                                    timeout.count(), " ms");
        shoal_group_abort(group.handle, text.c_str());
        C10D_THROW_ERROR(TimeoutError, "shoal: ", text);
    }
    for (int rank = 1; rank < size_; rank++)
        meet(rank, true)->wait(kNoTimeout);
}

/* One empty message to or from a rank. */
WorkPointer ShoalBackend::meet(int rank, bool sends)
{
    Tensors nothing = {at::empty({0}, at::kByte)};
    return sends ? send_message(nothing, rank, monitored_barrier_tag)
                 : receive(c10d::OpType::RECV, "shoal:recv", nothing, rank, monitored_barrier_tag);
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions &options)
{
    return c10::make_intrusive<ShoalBackend>(join(options), options.group_rank, options.group_size);
}

/* False if it is another backend. */
bool enter_arena(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    auto *ours = dynamic_cast<ShoalBackend *>(backend.get());
    if (ours)
        ours->enter_arena();
    return ours != nullptr;
}

/* Nothing if it is another backend. */
void expect(const c10::intrusive_ptr<c10d::Backend> &backend, const std::vector<size_t> &sizes)
{
    if (auto *ours = dynamic_cast<ShoalBackend *>(backend.get()))
        ours->expect(sizes);
}

pybind11::dict named_counters(const struct shoal_counters &counted)
{
    pybind11::dict named;
    named["operations"] = counted.operations;
    named["requests"] = counted.requests;
    named["bytes"] = counted.bytes;
    named["inline_bytes"] = counted.inline_bytes;
    named["symmetric_bytes"] = counted.symmetric_bytes;
    named["staged_bytes"] = counted.staged_bytes;
    named["direct_bytes"] = counted.direct_bytes;
    named["engine_bytes"] = counted.engine_bytes;
    named["streamed_bytes"] = counted.streamed_bytes;
    named["sent_bytes"] = counted.sent_bytes;
    named["received_bytes"] = counted.received_bytes;
    named["network_sent_bytes"] = counted.network_sent_bytes;
    named["network_received_bytes"] = counted.network_received_bytes;
    named["sleeps"] = counted.sleeps;
    return named;
}

/* None if it is another backend. */
pybind11::object counters(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    auto *ours = dynamic_cast<ShoalBackend *>(backend.get());
    if (!ours)
        return pybind11::none();
    return named_counters(ours->counters());
}

/* None if it is another backend. */
pybind11::object handle(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    auto *ours = dynamic_cast<ShoalBackend *>(backend.get());
    if (!ours)
        return pybind11::none();
    return pybind11::int_(reinterpret_cast<uintptr_t>(ours->use()->handle));
}

/* None if it is another backend. */
std::shared_ptr<Fuse> make_fuse(const c10::intrusive_ptr<c10d::Backend> &backend, Tensors like,
                                std::vector<std::string> names, const std::string &name,
                                at::ScalarType type, uint64_t buffer_bytes, int compression,
                                bool error_feedback)
{
    auto *ours = dynamic_cast<ShoalBackend *>(backend.get());
    if (!ours)
        return nullptr;
    Fuse::Wishes wishes = {buffer_bytes, static_cast<enum shoal_compression>(compression),
                           error_feedback};
    return std::make_shared<Fuse>(ours->use(), std::move(like), std::move(names), name, type,
                                  wishes);
}

/* By the names of the argument `compression`. */
pybind11::dict compressions()
{
    pybind11::dict named;
    named["bf16"] = static_cast<int>(SHOAL_COMPRESSION_BF16);
    named["fp16"] = static_cast<int>(SHOAL_COMPRESSION_F16);
    named["int8"] = static_cast<int>(SHOAL_COMPRESSION_INT8);
    return named;
}

pybind11::dict fuse_counters(Fuse &fuse)
{
    struct shoal_fuse_counters counted = fuse.counters();
    pybind11::dict named;
    named["steps"] = counted.steps;
    named["buffers"] = counted.buffers;
    named["bytes"] = counted.bytes;
    named["copied"] = counted.copied;
    named["held_back"] = counted.held_back;
    named["overtakings"] = counted.overtakings;
    named["flight_ns"] = counted.flight_ns;
    named["waited_ns"] = counted.waited_ns;
    named["exposed_ns"] = counted.exposed_ns;
    named["wire_bytes"] = counted.wire_bytes;
    named["joined"] = counted.joined;
    return named;
}

pybind11::dict fuse_traffic(Fuse &fuse)
{
    return named_counters(fuse.traffic());
}

void define_tensor_pipe(pybind11::module_ &module)
{
    pybind11::class_<TensorPipe::Promised>(module, "Promised")
        .def_readonly("value", &TensorPipe::Promised::value);
    pybind11::class_<TensorKinds>(module, "TensorKinds")
        .def(pybind11::init<
             const std::vector<std::tuple<std::vector<int64_t>, at::ScalarType, bool>> &>())
        .def("fit", &TensorKinds::fit)
        .def("are", &TensorKinds::are);
    pybind11::class_<TensorPipe>(module, "TensorPipe")
        .def(pybind11::init<uintptr_t, pybind11::type, pybind11::function>())
        .def("close", &TensorPipe::close)
        .def("promise", &TensorPipe::promise)
        .def("promised", &TensorPipe::promised)
        .def("drop", &TensorPipe::drop)
        .def("release", &TensorPipe::release)
        .def("put", &TensorPipe::put, pybind11::arg("value"),
             pybind11::arg("tensors") = std::vector<at::Tensor>(), pybind11::arg("descriptor") = "")
        .def("put_later", &TensorPipe::put_later)
        .def("flush", &TensorPipe::flush)
        .def("view", &TensorPipe::view)
        .def("views", &TensorPipe::views)
        .def("put_all", &TensorPipe::put_all)
        .def("backward", &TensorPipe::backward)
        .def("put_gradients", &TensorPipe::put_gradients)
        .def("submit", &TensorPipe::submit)
        .def("next", &TensorPipe::next);
}

/* Whether it is this one. */
bool is_shoal(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    return dynamic_cast<ShoalBackend *>(backend.get()) != nullptr;
}

} // namespace shoal_torch

PYBIND11_MODULE(shoal_torch_backend, module)
{
    module.def("create", &shoal_torch::create,
               pybind11::call_guard<pybind11::gil_scoped_release>());
    module.def("enter_arena", &shoal_torch::enter_arena);
    module.def("expect", &shoal_torch::expect);
    module.def("forget", [] { shoal_torch::ArenaAllocator::expected().clear(); });
    module.def("counters", &shoal_torch::counters);
    module.def("is_shoal", &shoal_torch::is_shoal);
    module.def("handle", &shoal_torch::handle);
    pybind11::class_<shoal_torch::Fuse, std::shared_ptr<shoal_torch::Fuse>>(module, "Fuse")
        .def("home", &shoal_torch::Fuse::home)
        .def("add", &shoal_torch::Fuse::add)
        .def("flush", &shoal_torch::Fuse::flush)
        .def("wait", &shoal_torch::Fuse::wait)
        .def("finish", &shoal_torch::Fuse::finish)
        .def("counters", &shoal_torch::fuse_counters)
        .def("traffic", &shoal_torch::fuse_traffic);
    module.def("make_fuse", &shoal_torch::make_fuse);
    shoal_torch::define_tensor_pipe(module);
    module.attr("compressions") = shoal_torch::compressions();
    module.def("leave_arena", [] { shoal_torch::ArenaAllocator::scope().reset(); });
    module.def(
        "stop", [] { shoal_torch::CompletionThreads::get().stop(); },
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
