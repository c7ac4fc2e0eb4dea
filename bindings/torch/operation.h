/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h: requests of the library as torch's Work and Future.
 *
 *   Operation   one request with the tensors that it needs, and what to do with the result.
 *   ShoalWork   what torch holds: one or more operations, their results, and a future.
 *
 * An operation is collected (waited for, its result copied to where the caller wants it) by the
 * first thread that comes: the one that waits for the work, or a completion thread; these exist
 * for futures and for works that nobody keeps.
 *
 * Invariants:
 *  1. A request is waited for or tested by one thread at a time (Operation::state_).
 *  2. An operation that is under way is referred to by a work, a list of the backend or its own
 *     callback, so that its buffers outlive it.
 *  3. Futures are completed and tensors let go without any lock held: both may run Python.
 */
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include <pthread.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "group.h"

namespace shoal_torch
{

using Tensors = std::vector<at::Tensor>;

constexpr Milliseconds own_deadline{-1}; /* as shoal_request_wait takes it */
constexpr Milliseconds look_for_signals_every{200};

/* ---- operations ------------------------------------------------------------------------------ */

/* One call of the library: what to start, what to keep until it is done, what to do then. */
struct Call {
    std::function<enum shoal_status(shoal_group_t, shoal_request_t *)> start;
    Tensors kept;
    std::function<void()> unpack; /* may be empty */
};

/* Copies results to their places. Runs on any thread, so torch's own state of the caller (no
 * autograd below a collective) has to be made here. */
inline void run_unpack(const Call &call)
{
    if (!call.unpack)
        return;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    call.unpack();
}

class Operation : public std::enable_shared_from_this<Operation>
{
  public:
    using Listener = std::function<void()>;

    Operation(std::shared_ptr<Group> group, const char *name, Call call)
        : group_(std::move(group)), name_(name), call_(std::move(call))
    {
    }

    void start(Milliseconds timeout);
    /* Collects the operation if it is done by then; false if not. Negative: its own deadline. */
    bool wait(Milliseconds timeout);
    bool test();
    /* Calls once when the operation has been collected, at once if it has. */
    void listen(Listener listener);
    /* Nobody will wait: collects when done, on a completion thread. */
    void detach();

    std::exception_ptr error()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return error_;
    }

  private:
    enum class State { UNDER_WAY, BEING_COLLECTED, COLLECTED };

    static void on_done(void *user, enum shoal_status status);
    void watch();
    void finish(enum shoal_status status);
    void look_for_signals();

    const std::shared_ptr<Group> group_;
    const char *const name_;
    Call call_;
    shoal_request_t request_ = nullptr; /* touched only by who made the state BEING_COLLECTED */

    std::mutex mutex_; /* the rest */
    std::condition_variable changed_;
    State state_ = State::UNDER_WAY;
    bool watched_ = false;
    std::vector<Listener> listeners_;
    std::exception_ptr error_;
};

/* Collects operations that are done, in the order in which they became so. A callback of a future
 * may wait for another operation of its own (torch's PowerSGD hook does), so a thread that works
 * always leaves an idle one behind. Lives as long as the process: callbacks of the library may come
 * at any time. */
class CompletionThreads
{
  public:
    static CompletionThreads &get()
    {
        static auto *const one = make();
        return *one;
    }

    /* Starts the first thread; in a forked child, which has none, a new one. */
    void start()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopped_ || process_ == getpid())
            return;
        process_ = getpid();
        idle_ = 0;
        count_ = 0;
        add_thread();
    }

    void push(std::shared_ptr<Operation> operation)
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            queue_.push_back(std::move(operation));
        }
        filled_.notify_one();
    }

    /* Before Python goes away: no callback starts any more, and those that run get some time. What
     * is in the queue then stays there. */
    void stop()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        stopped_ = true;
        if (process_ == getpid())
            became_idle_.wait_for(lock, stop_time_max, [this] { return idle_ == count_; });
    }

  private:
    /* Over a fork the lock is held, so that in the child it is free. */
    static CompletionThreads *make()
    {
        pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                       [] { get().mutex_.unlock(); });
        return new CompletionThreads;
    }

    static constexpr int count_max = 64;
    static constexpr std::chrono::seconds stop_time_max{10};

    /* mutex_ is held. */
    void add_thread()
    {
        count_++;
        idle_++;
        std::thread([this] { run(); }).detach();
    }

    void run()
    {
        pthread_setname_np(pthread_self(), "shoal-torch");
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            filled_.wait(lock, [this] { return !stopped_ && !queue_.empty(); });
            std::shared_ptr<Operation> operation = std::move(queue_.front());
            queue_.pop_front();
            idle_--;
            if (idle_ == 0 && count_ < count_max)
                add_thread();
            lock.unlock();
            operation->wait(own_deadline);
            operation.reset();
            lock.lock();
            idle_++;
            became_idle_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable filled_;
    std::condition_variable became_idle_;
    std::deque<std::shared_ptr<Operation>> queue_;
    pid_t process_ = -1; /* that the threads run in */
    int count_ = 0;
    int idle_ = 0;
    bool stopped_ = false;
};

inline void Operation::start(Milliseconds timeout)
{
    shoal_group_t group = group_->handle;
    enum shoal_status status;
    if (timeout.count() <= 0 || timeout == group_->timeout) {
        status = call_.start(group, &request_);
    } else {
        std::lock_guard<std::mutex> lock(group_->timeout_mutex);
        check(shoal_group_set_timeout(group, timeout.count()), group, name_);
        status = call_.start(group, &request_);
        std::exception_ptr error;
        if (status != SHOAL_OK)
            error = error_of(status, group, name_);
        check(shoal_group_set_timeout(group, group_->timeout.count()), group, name_);
        if (error)
            std::rethrow_exception(error);
    }
    check(status, group, name_);
}

/* While another thread waits for the operation, which nobody interrupts there. */
inline void Operation::look_for_signals()
{
    if (gettid() == getpid() && interrupted(nullptr) != 0)
        shoal_group_abort(group_->handle, "a call that waited there was interrupted");
}

inline bool Operation::wait(Milliseconds timeout)
{
    auto deadline = Clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    while (state_ == State::BEING_COLLECTED) {
        auto until = Clock::now() + look_for_signals_every;
        bool last = timeout.count() >= 0 && deadline <= until;
        if (changed_.wait_until(lock, last ? deadline : until) == std::cv_status::no_timeout)
            continue;
        if (last)
            return state_ == State::COLLECTED;
        lock.unlock();
        look_for_signals();
        lock.lock();
    }
    if (state_ == State::COLLECTED) {
        rethrow_interruption();
        return true;
    }
    state_ = State::BEING_COLLECTED;
    lock.unlock();

    enum shoal_status status = shoal_request_wait(&request_, timeout.count());
    if (request_ == nullptr || status == SHOAL_ERR_STATE) { /* the latter in a forked child */
        finish(status);
        rethrow_interruption();
        return true;
    }
    lock.lock(); /* the caller's own time passed first */
    state_ = State::UNDER_WAY;
    if (!listeners_.empty())
        watch();
    changed_.notify_all();
    return false;
}

inline bool Operation::test()
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (state_ != State::UNDER_WAY)
        return state_ == State::COLLECTED;
    state_ = State::BEING_COLLECTED;
    lock.unlock();

    enum shoal_status status = shoal_request_test(&request_);
    if (status != SHOAL_IN_PROGRESS) {
        finish(status);
        return true;
    }
    lock.lock();
    state_ = State::UNDER_WAY;
    if (!listeners_.empty())
        watch();
    changed_.notify_all();
    return false;
}

/* By the thread that made the state BEING_COLLECTED, after the request has ended. */
inline void Operation::finish(enum shoal_status status)
{
    std::exception_ptr error;
    if (status != SHOAL_OK) {
        error = error_of(status, group_->handle, name_);
    } else {
        try {
            run_unpack(call_);
        } catch (...) {
            error = std::current_exception();
        }
    }
    call_ = Call();
    std::vector<Listener> listeners;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        error_ = error;
        state_ = State::COLLECTED;
        listeners.swap(listeners_);
    }
    changed_.notify_all();
    for (Listener &listener : listeners)
        listener();
}

inline void Operation::listen(Listener listener)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (state_ != State::COLLECTED) {
            listeners_.push_back(std::move(listener));
            if (state_ == State::UNDER_WAY)
                watch();
            return;
        }
    }
    listener();
}

inline void Operation::detach()
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::UNDER_WAY)
        watch();
}

/* mutex_ is held and the state is UNDER_WAY, so that the request cannot be freed meanwhile. */
inline void Operation::watch()
{
    if (watched_)
        return;
    watched_ = true;
    CompletionThreads::get().start();
    auto *self = new std::shared_ptr<Operation>(shared_from_this());
    enum shoal_status status = shoal_request_on_done(request_, on_done, self);
    if (status == SHOAL_ERR_STATE) { /* in a forked child: who collects it gets the error */
        on_done(self, status);
        return;
    }
    TORCH_INTERNAL_ASSERT(status == SHOAL_OK, "shoal_request_on_done: ", shoal_status_name(status));
}

/* On a thread of the library, or within watch(). */
inline void Operation::on_done(void *user, enum shoal_status)
{
    std::unique_ptr<std::shared_ptr<Operation>> self(
        static_cast<std::shared_ptr<Operation> *>(user));
    CompletionThreads::get().push(std::move(*self));
}

/* ---- work ------------------------------------------------------------------------------------ */

using Operations = std::vector<std::shared_ptr<Operation>>;

inline std::exception_ptr first_error(const Operations &operations)
{
    for (const auto &operation : operations) {
        if (std::exception_ptr error = operation->error())
            return error;
    }
    return nullptr;
}

/* Completes a future when all operations of a work are collected, even if the work is gone. */
struct Completion {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    Tensors results;
    Operations operations;
    std::function<void()> profiled; /* ends the profiler's record */
    std::atomic<size_t> missing;

    void complete()
    {
        if (profiled)
            profiled();
        std::exception_ptr error = first_error(operations);
        operations.clear();
        if (error)
            future->setErrorIfNeeded(error);
        else
            future->markCompleted(c10::IValue(results));
    }
};

class ShoalWork : public c10d::Work
{
  public:
    ShoalWork(std::shared_ptr<Group> group, c10d::OpType type, const char *title, uint64_t sequence,
              Tensors results)
        : Work(shoal_group_rank(group->handle), type, title), group_(std::move(group)),
          sequence_(sequence), results_(std::move(results)), started_(Clock::now())
    {
    }

    ~ShoalWork() override
    {
        for (const auto &operation : operations_)
            operation->detach();
    }

    void add(std::shared_ptr<Operation> operation)
    {
        operations_.push_back(std::move(operation));
    }

    Operations take_operations()
    {
        return std::move(operations_);
    }

    void set_source(std::shared_ptr<struct shoal_recv_info> info)
    {
        source_ = std::move(info);
    }

    /* All operations are collected, or there was none to wait for. */
    void settle()
    {
        ended_ = Clock::now();
        finish(first_error(operations_));
    }

    bool isCompleted() override
    {
        if (Work::isCompleted())
            return true;
        for (const auto &operation : operations_) {
            if (!operation->test())
                return false;
        }
        settle();
        return true;
    }

    bool wait(Milliseconds timeout) override
    {
        if (!Work::isCompleted()) {
            auto deadline = Clock::now() + timeout;
            for (const auto &operation : operations_) {
                auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
                if (!operation->wait(timeout == kNoTimeout ? own_deadline
                                                           : std::max(left, Milliseconds(0))))
                    C10D_THROW_ERROR(TimeoutError, "shoal: not done within ", timeout.count(),
                                     " ms; the operation goes on and can be waited for again");
            }
            settle();
        }
        if (std::exception_ptr error = exception())
            std::rethrow_exception(error);
        return true;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

    Tensors result() override
    {
        return results_;
    }

    int sourceRank() const override
    {
        TORCH_CHECK(source_, "shoal: only the work of a receive has a source rank");
        return source_->source;
    }

    void abort() override
    {
        shoal_group_abort(group_->handle, "the work of an operation was aborted");
    }

    float getDuration() const override
    {
        TORCH_CHECK(ended_ > started_, "shoal: the duration is known after the work is done");
        return std::chrono::duration<float, std::milli>(ended_ - started_).count();
    }

    uint64_t getSequencenumber() const override
    {
        return sequence_;
    }

  private:
    const std::shared_ptr<Group> group_;
    const uint64_t sequence_;
    const Tensors results_;
    const Clock::time_point started_;
    Clock::time_point ended_;
    Operations operations_;
    std::shared_ptr<struct shoal_recv_info> source_;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

inline c10::intrusive_ptr<c10::ivalue::Future> ShoalWork::getFuture()
{
    {
        std::lock_guard<std::mutex> lock(future_mutex_);
        if (future_)
            return future_;
        future_ =
            c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    }
    auto completion = std::make_shared<Completion>();
    completion->future = future_;
    completion->results = results_;
    completion->operations = operations_;
    completion->missing = operations_.size();
    if (operations_.empty()) {
        completion->complete();
        return future_;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        std::swap(completion->profiled, recordFunctionEndCallback_);
    }
    for (const auto &operation : operations_) {
        operation->listen([completion] {
            if (--completion->missing == 0)
                completion->complete();
        });
    }
    return future_;
}

} // namespace shoal_torch
