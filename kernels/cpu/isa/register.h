// Each .cc of this folder fills its part of the table.
#pragma once

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/kernel_table.h"

namespace triax::kernels::TRIAX_ISA {

void register_gemm(KernelTable& table);
void register_norm(KernelTable& table);
void register_activation(KernelTable& table);
void register_dropout(KernelTable& table);
void register_attention_forward(KernelTable& table);
void register_attention_backward(KernelTable& table);
void register_cross_entropy(KernelTable& table);
void register_elementwise(KernelTable& table);
void register_optimizer(KernelTable& table);

/// Calls f<T>(kernels of T) for the four floating types. F: struct with template <class T> static void
/// fill(TypeKernels&).
template <class F>
TRIAX_INLINE void for_each_type(KernelTable& table) {
  F::template fill<double>(table.type[0]);
  F::template fill<float>(table.type[1]);
  F::template fill<Bf16>(table.type[2]);
  F::template fill<Fp16>(table.type[3]);
}

}  // namespace triax::kernels::TRIAX_ISA
