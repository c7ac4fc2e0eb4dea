/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h: tensors in, one call of the library out.
 *
 * Each function checks what torch gave, finds the memory (the tensor's own where its elements lie
 * in order in one piece, else a buffer that is copied from and back), and says what to call.
 */
#pragma once

#include "operation.h"

namespace shoal_torch
{

/* ---- tensors --------------------------------------------------------------------------------- */

inline void check_tensor(const at::Tensor &tensor, const char *operation)
{
    TORCH_CHECK_VALUE(tensor.defined(), "shoal: ", operation, ": an undefined tensor");
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), "shoal: ", operation, ": a tensor on ",
                      tensor.device(), "; this backend takes CPU tensors");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_quantized(),
                      "shoal: ", operation, ": a ", tensor.is_quantized() ? "quantised" : "sparse",
                      " tensor; this backend takes dense tensors");
}

inline at::Tensor &only(Tensors &tensors, const char *operation)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "shoal: ", operation, ": takes one tensor, got ",
                      tensors.size());
    check_tensor(tensors[0], operation);
    return tensors[0];
}

inline Tensors &only(std::vector<Tensors> &lists, const char *operation)
{
    TORCH_CHECK_VALUE(lists.size() == 1, "shoal: ", operation, ": takes one list of tensors, got ",
                      lists.size());
    return lists[0];
}

inline bool in_one_piece(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* The tensor itself if its elements lie in order in one piece, else memory of that form, filled
 * from the tensor if `filled`. */
inline at::Tensor flat(const at::Tensor &tensor, bool filled)
{
    if (in_one_piece(tensor))
        return tensor;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
    if (filled)
        copy.copy_(tensor);
    return copy;
}

inline std::function<void()> copy_back(const at::Tensor &tensor, const at::Tensor &from)
{
    if (tensor.is_same(from))
        return nullptr;
    return [tensor, from] { tensor.copy_(from); };
}

/* How tensors of a type travel: as shoal's dtype, `each` of them per element. */
struct Element {
    enum shoal_dtype dtype;
    uint64_t each;
};

inline bool shoal_dtype_of(at::ScalarType type, enum shoal_dtype *out)
{
    switch (type) {
    case at::kDouble: *out = SHOAL_F64; return true;
    case at::kFloat: *out = SHOAL_F32; return true;
    case at::kHalf: *out = SHOAL_F16; return true;
    case at::kBFloat16: *out = SHOAL_BF16; return true;
    case at::kChar: *out = SHOAL_I8; return true;
    case at::kByte: *out = SHOAL_U8; return true;
    case at::kShort: *out = SHOAL_I16; return true;
    case at::kInt: *out = SHOAL_I32; return true;
    case at::kLong: *out = SHOAL_I64; return true;
    case at::kUInt16: *out = SHOAL_U16; return true;
    case at::kUInt32: *out = SHOAL_U32; return true;
    case at::kUInt64: *out = SHOAL_U64; return true;
    case at::kBool: *out = SHOAL_BOOL; return true;
    case at::kComplexFloat: *out = SHOAL_COMPLEX64; return true;
    case at::kComplexDouble: *out = SHOAL_COMPLEX128; return true;
    default: return false;
    }
}

/* Operations that only move elements take every type: those unknown to shoal as bytes. */
inline Element moved(const at::Tensor &tensor)
{
    Element element{SHOAL_U8, 1};
    if (!shoal_dtype_of(tensor.scalar_type(), &element.dtype))
        element.each = tensor.element_size();
    return element;
}

inline enum shoal_dtype reduced(const at::Tensor &tensor, const char *operation)
{
    enum shoal_dtype dtype = SHOAL_U8;
    TORCH_CHECK_VALUE(shoal_dtype_of(tensor.scalar_type(), &dtype), "shoal: ", operation,
                      ": no arithmetic on ", tensor.scalar_type(),
                      "; convert the tensor, or move it with a gather");
    return dtype;
}

/* A reduction as shoal names it; `factor` is defined for PREMUL_SUM. */
struct Reduction {
    enum shoal_op op;
    at::Tensor factor;
};

inline at::Tensor premul_factor(const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    auto *supplement = dynamic_cast<c10d::PreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(supplement, "shoal: PREMUL_SUM needs its factor");
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor factor = at::empty({1}, tensor.options());
    if (supplement->tensor_factor.defined())
        factor.copy_(supplement->tensor_factor.reshape({1}));
    else
        factor.fill_(supplement->double_factor);
    return factor;
}

inline Reduction reduction(const c10d::ReduceOp &op, const at::Tensor &tensor,
                           const char *operation)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM: return {SHOAL_SUM, {}};
    case c10d::ReduceOp::AVG: return {SHOAL_AVG, {}};
    case c10d::ReduceOp::PRODUCT: return {SHOAL_PROD, {}};
    case c10d::ReduceOp::MIN: return {SHOAL_MIN, {}};
    case c10d::ReduceOp::MAX: return {SHOAL_MAX, {}};
    case c10d::ReduceOp::BAND: return {SHOAL_BAND, {}};
    case c10d::ReduceOp::BOR: return {SHOAL_BOR, {}};
    case c10d::ReduceOp::BXOR: return {SHOAL_BXOR, {}};
    case c10d::ReduceOp::PREMUL_SUM: return {SHOAL_PREMUL_SUM, premul_factor(op, tensor)};
    default: break;
    }
    TORCH_CHECK_VALUE(false, "shoal: ", operation, ": an unknown reduction, number ",
                      static_cast<int>(op.op_));
}

/* One tensor per rank, seen as one array: in place where they lie behind one another (views of one
 * tensor), else through a buffer. */
class Blocks
{
  public:
    Blocks(const Tensors &tensors, bool filled, const char *operation) : tensors_(tensors)
    {
        TORCH_CHECK_VALUE(!tensors.empty(), "shoal: ", operation, ": an empty list of tensors");
        for (const at::Tensor &tensor : tensors) {
            check_tensor(tensor, operation);
            TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(),
                              "shoal: ", operation, ": a list with ", tensors[0].scalar_type(),
                              " and ", tensor.scalar_type());
            counts_.push_back(static_cast<uint64_t>(tensor.numel()));
            total_ += tensor.numel();
        }
        if (adjacent()) {
            data_ = tensors[0].data_ptr();
            return;
        }
        at::AutoDispatchBelowADInplaceOrView below_autograd;
        buffer_ = at::empty({total_}, tensors[0].options());
        data_ = buffer_.data_ptr();
        if (filled)
            each([](at::Tensor part, const at::Tensor &tensor) { part.copy_(tensor); });
    }

    void *data() const
    {
        return data_;
    }

    const std::vector<uint64_t> &counts() const
    {
        return counts_;
    }

    bool equal() const
    {
        return std::all_of(counts_.begin(), counts_.end(),
                           [this](uint64_t count) { return count == counts_[0]; });
    }

    std::vector<uint64_t> counts_times(uint64_t each) const
    {
        std::vector<uint64_t> counts = counts_;
        for (uint64_t &count : counts)
            count *= each;
        return counts;
    }

    /* From the buffer to the tensors; nothing where there is no buffer. */
    void unpack() const
    {
        if (buffer_.defined())
            each([](const at::Tensor &part, const at::Tensor &tensor) { tensor.copy_(part); });
    }

  private:
    bool adjacent() const
    {
        const char *next = static_cast<const char *>(tensors_[0].data_ptr());
        for (const at::Tensor &tensor : tensors_) {
            if (!in_one_piece(tensor) || tensor.data_ptr() != next)
                return false;
            next += tensor.nbytes();
        }
        return true;
    }

    template <typename Copy> void each(Copy copy) const
    {
        int64_t offset = 0;
        for (const at::Tensor &tensor : tensors_) {
            copy(buffer_.narrow(0, offset, tensor.numel()).view(tensor.sizes()), tensor);
            offset += tensor.numel();
        }
    }

    Tensors tensors_;
    std::vector<uint64_t> counts_;
    int64_t total_ = 0;
    at::Tensor buffer_;
    void *data_ = nullptr;
};

using BlocksPointer = std::shared_ptr<Blocks>;

/* ---- calls: tensors in, one call of the library out -------------------------------------------
 */

inline Call reduce_all_call(void *data, uint64_t count, enum shoal_dtype dtype, const Reduction &by)
{
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        if (by.op == SHOAL_PREMUL_SUM)
            return shoal_allreduce_premul(data, data, count, dtype, by.factor.data_ptr(), group,
                                          request);
        return shoal_allreduce(data, data, count, dtype, by.op, group, request);
    };
    return call;
}

inline Call allreduce_call(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    enum shoal_dtype dtype = reduced(tensor, "all_reduce");
    Reduction by = reduction(op, tensor, "all_reduce");
    at::Tensor in = flat(tensor, true);
    Call call = reduce_all_call(in.data_ptr(), in.numel(), dtype, by);
    call.kept = {in};
    call.unpack = copy_back(tensor, in);
    return call;
}

inline Call allreduce_packed_call(const Tensors &tensors, const c10d::ReduceOp &op)
{
    enum shoal_dtype dtype = reduced(tensors[0], "all_reduce_coalesced");
    Reduction by = reduction(op, tensors[0], "all_reduce_coalesced");
    auto blocks = std::make_shared<Blocks>(tensors, true, "all_reduce_coalesced");
    uint64_t count = 0;
    for (uint64_t part : blocks->counts())
        count += part;
    Call call = reduce_all_call(blocks->data(), count, dtype, by);
    call.unpack = [blocks] { blocks->unpack(); };
    return call;
}

inline Call broadcast_call(const at::Tensor &tensor, int root, bool is_root)
{
    Element element = moved(tensor);
    at::Tensor buffer = flat(tensor, is_root);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_broadcast(buffer.data_ptr(), buffer.numel() * element.each, element.dtype,
                               root, group, request);
    };
    if (!is_root)
        call.unpack = copy_back(tensor, buffer);
    return call;
}

inline Call reduce_call(const at::Tensor &tensor, const c10d::ReduceOp &op, int root, bool is_root)
{
    enum shoal_dtype dtype = reduced(tensor, "reduce");
    Reduction by = reduction(op, tensor, "reduce");
    TORCH_CHECK_VALUE(by.op != SHOAL_PREMUL_SUM,
                      "shoal: reduce: PREMUL_SUM is for all_reduce and reduce_scatter");
    at::Tensor in = flat(tensor, true);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        void *data = in.data_ptr();
        return shoal_reduce(data, is_root ? data : nullptr, in.numel(), dtype, by.op, root, group,
                            request);
    };
    if (is_root)
        call.unpack = copy_back(tensor, in);
    return call;
}

inline Call allgather_call(const at::Tensor &output, const at::Tensor &input, int size)
{
    check_tensor(output, "all_gather_into_tensor");
    check_tensor(input, "all_gather_into_tensor");
    TORCH_CHECK_VALUE(
        output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * size,
        "shoal: all_gather_into_tensor: the output has ", output.numel(), " ", output.scalar_type(),
        ", but ", size, " ranks give ", input.numel(), " ", input.scalar_type(), " each");
    Element element = moved(input);
    at::Tensor in = flat(input, true);
    at::Tensor out = flat(output, false);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_allgather(in.data_ptr(), out.data_ptr(), in.numel() * element.each,
                               element.dtype, group, request);
    };
    call.unpack = copy_back(output, out);
    return call;
}

inline void check_block(const Blocks &blocks, const Tensors &list, int rank, int size,
                        const at::Tensor &own, const char *operation)
{
    TORCH_CHECK_VALUE(blocks.counts().size() == static_cast<size_t>(size), "shoal: ", operation,
                      ": the list has ", blocks.counts().size(), " tensors, the group ", size,
                      " ranks");
    TORCH_CHECK_VALUE(list[0].scalar_type() == own.scalar_type() &&
                          blocks.counts()[rank] == static_cast<uint64_t>(own.numel()),
                      "shoal: ", operation, ": this rank's tensor has ", own.numel(), " ",
                      own.scalar_type(), ", its place in the list ", blocks.counts()[rank], " ",
                      list[0].scalar_type());
}

/* The parts may differ in size, as long as every rank gives the same sizes. */
inline Call allgather_list_call(const Tensors &outputs, const at::Tensor &input, int rank, int size)
{
    auto blocks = std::make_shared<Blocks>(outputs, false, "all_gather");
    check_block(*blocks, outputs, rank, size, input, "all_gather");
    Element element = moved(input);
    at::Tensor in = flat(input, true);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        if (blocks->equal())
            return shoal_allgather(in.data_ptr(), blocks->data(), in.numel() * element.each,
                                   element.dtype, group, request);
        return shoal_allgatherv(in.data_ptr(), blocks->data(),
                                blocks->counts_times(element.each).data(), nullptr, element.dtype,
                                group, request);
    };
    call.unpack = [blocks] { blocks->unpack(); };
    return call;
}

/* `outputs` is empty except on the root. */
inline Call gather_call(const Tensors &outputs, const at::Tensor &input, int root, int rank,
                        int size)
{
    BlocksPointer blocks;
    if (rank == root) {
        blocks = std::make_shared<Blocks>(outputs, false, "gather");
        check_block(*blocks, outputs, rank, size, input, "gather");
        TORCH_CHECK_VALUE(blocks->equal(), "shoal: gather: the tensors differ in size");
    }
    Element element = moved(input);
    at::Tensor in = flat(input, true);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_gather(in.data_ptr(), blocks ? blocks->data() : nullptr,
                            in.numel() * element.each, element.dtype, root, group, request);
    };
    if (blocks)
        call.unpack = [blocks] { blocks->unpack(); };
    return call;
}

/* `inputs` is empty except on the root. */
inline Call scatter_call(const at::Tensor &output, const Tensors &inputs, int root, int rank,
                         int size)
{
    BlocksPointer blocks;
    if (rank == root) {
        blocks = std::make_shared<Blocks>(inputs, true, "scatter");
        check_block(*blocks, inputs, rank, size, output, "scatter");
        TORCH_CHECK_VALUE(blocks->equal(), "shoal: scatter: the tensors differ in size");
    }
    Element element = moved(output);
    at::Tensor out = flat(output, false);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_scatter(blocks ? blocks->data() : nullptr, out.data_ptr(),
                             out.numel() * element.each, element.dtype, root, group, request);
    };
    call.unpack = copy_back(output, out);
    return call;
}

inline Call reduce_scatter_call(const at::Tensor &output, const at::Tensor &input,
                                const c10d::ReduceOp &op, int size)
{
    const char *name = "reduce_scatter_tensor";
    check_tensor(output, name);
    check_tensor(input, name);
    TORCH_CHECK_VALUE(
        output.scalar_type() == input.scalar_type() && input.numel() == output.numel() * size,
        "shoal: ", name, ": the input has ", input.numel(), " ", input.scalar_type(), ", but ",
        size, " ranks take ", output.numel(), " ", output.scalar_type(), " each");
    enum shoal_dtype dtype = reduced(input, name);
    Reduction by = reduction(op, input, name);
    at::Tensor in = flat(input, true);
    at::Tensor out = flat(output, false);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        if (by.op == SHOAL_PREMUL_SUM)
            return shoal_reduce_scatter_premul(in.data_ptr(), out.data_ptr(), out.numel(), dtype,
                                               by.factor.data_ptr(), group, request);
        return shoal_reduce_scatter(in.data_ptr(), out.data_ptr(), out.numel(), dtype, by.op, group,
                                    request);
    };
    call.unpack = copy_back(output, out);
    return call;
}

inline Call reduce_scatter_list_call(const at::Tensor &output, const Tensors &inputs,
                                     const c10d::ReduceOp &op, int rank, int size)
{
    const char *name = "reduce_scatter";
    auto blocks = std::make_shared<Blocks>(inputs, true, name);
    check_block(*blocks, inputs, rank, size, output, name);
    enum shoal_dtype dtype = reduced(output, name);
    Reduction by = reduction(op, output, name);
    TORCH_CHECK_VALUE(by.op != SHOAL_PREMUL_SUM || blocks->equal(), "shoal: ", name,
                      ": PREMUL_SUM of tensors that differ in size");
    at::Tensor out = flat(output, false);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        if (by.op == SHOAL_PREMUL_SUM)
            return shoal_reduce_scatter_premul(blocks->data(), out.data_ptr(), out.numel(), dtype,
                                               by.factor.data_ptr(), group, request);
        if (blocks->equal())
            return shoal_reduce_scatter(blocks->data(), out.data_ptr(), out.numel(), dtype, by.op,
                                        group, request);
        return shoal_reduce_scatterv(blocks->data(), out.data_ptr(), blocks->counts().data(), dtype,
                                     by.op, group, request);
    };
    call.unpack = copy_back(output, out);
    return call;
}

/* Elements per rank of `tensor`, whose first dimension is cut as `splits` say (empty: evenly). */
inline std::vector<uint64_t> split_counts(const at::Tensor &tensor,
                                          const std::vector<int64_t> &splits, int size)
{
    const char *name = "all_to_all_single";
    check_tensor(tensor, name);
    int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "shoal: ", name, ": a first dimension of ", rows,
                          " can't be cut evenly for ", size, " ranks");
        return std::vector<uint64_t>(size, static_cast<uint64_t>(tensor.numel() / size));
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "shoal: ", name, ": ",
                      splits.size(), " splits for ", size, " ranks");
    std::vector<uint64_t> counts;
    int64_t total = 0;
    for (int64_t split : splits) {
        TORCH_CHECK_VALUE(split >= 0, "shoal: ", name, ": a split of ", split);
        counts.push_back(static_cast<uint64_t>(split * row));
        total += split;
    }
    TORCH_CHECK_VALUE(total == rows, "shoal: ", name, ": the splits sum up to ", total,
                      ", the first dimension is ", rows);
    return counts;
}

inline void multiply(std::vector<uint64_t> &counts, uint64_t each)
{
    for (uint64_t &count : counts)
        count *= each;
}

inline Call alltoall_call(const at::Tensor &output, const at::Tensor &input,
                          const std::vector<int64_t> &output_splits,
                          const std::vector<int64_t> &input_splits, int size)
{
    std::vector<uint64_t> sent = split_counts(input, input_splits, size);
    std::vector<uint64_t> received = split_counts(output, output_splits, size);
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                      "shoal: all_to_all_single: the input is ", input.scalar_type(),
                      ", the output ", output.scalar_type());
    Element element = moved(input);
    multiply(sent, element.each);
    multiply(received, element.each);
    bool even = input_splits.empty() && output_splits.empty();
    at::Tensor in = flat(input, true);
    at::Tensor out = flat(output, false);
    if (in.data_ptr() == out.data_ptr())
        in = in.clone();
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        if (even)
            return shoal_alltoall(in.data_ptr(), out.data_ptr(), sent[0], element.dtype, group,
                                  request);
        return shoal_alltoallv(in.data_ptr(), sent.data(), nullptr, out.data_ptr(), received.data(),
                               nullptr, element.dtype, group, request);
    };
    call.unpack = copy_back(output, out);
    return call;
}

inline Call alltoall_list_call(const Tensors &outputs, const Tensors &inputs, int size)
{
    const char *name = "all_to_all";
    TORCH_CHECK_VALUE(inputs.size() == static_cast<size_t>(size) && outputs.size() == inputs.size(),
                      "shoal: ", name, ": ", inputs.size(), " inputs and ", outputs.size(),
                      " outputs for ", size, " ranks");
    auto in = std::make_shared<Blocks>(inputs, true, name);
    auto out = std::make_shared<Blocks>(outputs, false, name);
    Element element = moved(inputs[0]);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_alltoallv(in->data(), in->counts_times(element.each).data(), nullptr,
                               out->data(), out->counts_times(element.each).data(), nullptr,
                               element.dtype, group, request);
    };
    call.unpack = [in, out] { out->unpack(); };
    return call;
}

inline Call barrier_call()
{
    Call call;
    call.start = [](shoal_group_t group, shoal_request_t *request) {
        return shoal_barrier(group, request);
    };
    return call;
}

inline Call send_call(const at::Tensor &tensor, int destination, int tag)
{
    Element element = moved(tensor);
    at::Tensor in = flat(tensor, true);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_send(in.data_ptr(), in.numel() * element.each, element.dtype, destination, tag,
                          group, request);
    };
    return call;
}

inline Call receive_call(const at::Tensor &tensor, int source, int tag,
                         const std::shared_ptr<struct shoal_recv_info> &info)
{
    Element element = moved(tensor);
    at::Tensor out = flat(tensor, false);
    Call call;
    call.start = [=](shoal_group_t group, shoal_request_t *request) {
        return shoal_recv(out.data_ptr(), out.numel() * element.each, element.dtype, source, tag,
                          info.get(), group, request);
    };
    call.unpack = [tensor, out, info] {
        TORCH_CHECK_VALUE(info->bytes == out.nbytes(), "shoal: recv: rank ", info->source, " sent ",
                          info->bytes, " bytes with tag ", info->tag, ", the tensor holds ",
                          out.nbytes());
        if (!tensor.is_same(out))
            tensor.copy_(out);
    };
    return call;
}

} // namespace shoal_torch
