// Attention: checks, scratch, and the split into tasks.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace triax::kernels {
namespace {

int64_t checked_rows(const Attention& a) {
  ensure(a.batch > 0 && a.seq_length > 0 && a.head_dim > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
         "attention: sizes must be positive and kv_heads divide heads");
  ensure(a.scale > 0, "attention: scale must be positive");
  return a.batch * a.seq_length;
}

AttentionArgs make_args(const char* operation, const Attention& a) {
  AttentionArgs args{};
  args.batch = a.batch;
  args.seq = a.seq_length;
  args.heads = a.heads;
  args.kv_heads = a.kv_heads;
  args.dim = a.head_dim;
  args.head_begin = a.head_begin;
  args.scale = a.scale;
  args.dropout = dropout_args(operation, a.dropout, a.index, a.batch * a.seq_length);
  ensure(!args.dropout.active || args.dropout.batch == a.batch, "attention: index.sample must have b elements");
  return args;
}

}  // namespace

void CpuDevice::attention_forward(const Attention& a, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) {
  const char* const name = "attention_forward";
  const int64_t rows = checked_rows(a);
  check_matrix(name, "q", q, q.dtype(), rows, a.heads * a.head_dim);
  check_matrix(name, "k", k, q.dtype(), rows, a.kv_heads * a.head_dim);
  check_matrix(name, "v", v, q.dtype(), rows, a.kv_heads * a.head_dim);
  check_matrix(name, "o", o, q.dtype(), rows, a.heads * a.head_dim);
  check_vector(name, "lse", lse, compute_type(q.dtype()), a.heads * rows);
  AttentionArgs args = make_args(name, a);
  args.q = view_of(q);
  args.k = view_of(k);
  args.v = view_of(v);
  args.o = view_of(o);
  args.lse = lse.data();
  const TypeKernels& kernel = kernels(q.dtype());

  // A task is one KV head of one sample; when there are too few for an even split, also a part of the queries.
  const int64_t heads = a.batch * a.kv_heads;
  const int64_t blocks = (a.seq_length + kAttentionBlock - 1) / kAttentionBlock;
  const int64_t parts =
      threads_.count() == 1 || heads >= 8 * threads_.count() ? 1 : std::min<int64_t>(blocks, 2 * threads_.count());
  const int64_t bytes = kernel.attention_forward_bytes(args);
  const Buffer scratch = workspace_.allocate(static_cast<size_t>(bytes * threads_.count()), MemoryCategory::Workspace);
  threads_.tasks(heads * parts, [&](int64_t task, int thread) {
    const int64_t head = task / parts;
    const int64_t part = parts - 1 - task % parts;  // the longest first
    const int64_t begin = blocks * part / parts * kAttentionBlock;
    const int64_t end = std::min(blocks * (part + 1) / parts * kAttentionBlock, a.seq_length);
    kernel.attention_forward(args, head / a.kv_heads, head % a.kv_heads, begin, end,
                             static_cast<char*>(scratch.data()) + bytes * thread);
  });
}

void CpuDevice::attention_backward(const Attention& a, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
                                   Tensor dq, Tensor dk, Tensor dv) {
  const char* const name = "attention_backward";
  const int64_t rows = checked_rows(a);
  const DType dtype = q.dtype();
  const int64_t query_cols = a.heads * a.head_dim;
  const int64_t key_cols = a.kv_heads * a.head_dim;
  check_matrix(name, "q", q, dtype, rows, query_cols);
  check_matrix(name, "o", o, dtype, rows, query_cols);
  check_matrix(name, "dout", dout, dtype, rows, query_cols);
  check_matrix(name, "dq", dq, dtype, rows, query_cols);
  check_matrix(name, "k", k, dtype, rows, key_cols);
  check_matrix(name, "v", v, dtype, rows, key_cols);
  check_matrix(name, "dk", dk, dtype, rows, key_cols);
  check_matrix(name, "dv", dv, dtype, rows, key_cols);
  check_vector(name, "lse", lse, compute_type(dtype), a.heads * rows);
  AttentionArgs args = make_args(name, a);
  args.q = view_of(q);
  args.k = view_of(k);
  args.v = view_of(v);
  args.o = view_of(o);
  args.dout = view_of(dout);
  args.dq = view_of(dq);
  args.dk = view_of(dk);
  args.dv = view_of(dv);
  args.lse = lse.data();
  const TypeKernels& kernel = kernels(dtype);
  const int64_t bytes = kernel.attention_backward_bytes(args);
  const Buffer scratch = workspace_.allocate(static_cast<size_t>(bytes * threads_.count()), MemoryCategory::Workspace);
  threads_.tasks(a.batch * a.kv_heads, [&](int64_t task, int thread) {
    kernel.attention_backward(args, task / a.kv_heads, task % a.kv_heads,
                              static_cast<char*>(scratch.data()) + bytes * thread);
  });
}

}  // namespace triax::kernels
