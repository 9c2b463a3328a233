// The table of this instruction set.
#include "kernels/cpu/isa/register.h"

#define TRIAX_NAME_OF_(isa) #isa
#define TRIAX_NAME_OF(isa) TRIAX_NAME_OF_(isa)

namespace triax::kernels::TRIAX_ISA {

KernelTable make_table() {
  KernelTable table{};
  table.isa = TRIAX_NAME_OF(TRIAX_ISA) + sizeof("isa_") - 1;
#if defined(__AVX512BF16__)
  table.bf16_products = true;
#endif
  register_gemm(table);
  register_norm(table);
  register_activation(table);
  register_dropout(table);
  register_attention_forward(table);
  register_attention_backward(table);
  register_cross_entropy(table);
  register_elementwise(table);
  register_optimizer(table);
  return table;
}

}  // namespace triax::kernels::TRIAX_ISA
