// Chooses the instruction set at run time.
#if defined(TRIAX_X86_VARIANTS)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernels/cpu/kernel_table.h"

namespace triax::kernels {

// Defined in isa/table.cc, compiled once per instruction set (kernels/CMakeLists.txt).
namespace isa_base {
KernelTable make_table();
}
#if defined(TRIAX_X86_VARIANTS)
namespace isa_avx2 {
KernelTable make_table();
}
namespace isa_avx512_bf16 {
KernelTable make_table();
}
namespace isa_avx512 {
KernelTable make_table();
}
#endif

namespace {

struct Variant {
  const char* name;
  bool (*supported)();
  KernelTable (*make)();
};

#if defined(TRIAX_X86_VARIANTS)
// As kernels/CMakeLists.txt compiles them.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

// Best first.
constexpr Variant kVariants[] = {
#if defined(TRIAX_X86_VARIANTS)
    {"avx512_bf16", [] { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }, isa_avx512_bf16::make_table},
    {"avx512", has_avx512, isa_avx512::make_table},
    {"avx2", has_avx2, isa_avx2::make_table},
#endif
    {"base", [] { return true; }, isa_base::make_table},
};

}  // namespace

const KernelTable& cpu_kernel_table(const char* isa) {
  static const std::array<KernelTable, std::size(kVariants)> tables = [] {
    std::array<KernelTable, std::size(kVariants)> made{};
    for (size_t i = 0; i < made.size(); ++i) made[i] = kVariants[i].make();
    return made;
  }();
  std::string legal;
  for (size_t i = 0; i < std::size(kVariants); ++i) {
    if (!kVariants[i].supported()) continue;
    if (isa == nullptr || std::string_view(isa) == kVariants[i].name) return tables[i];
    legal += (legal.empty() ? "" : ", ") + std::string(kVariants[i].name);
  }
  throw ConfigError("TRIAX_CPU_ISA=" + std::string(isa) + ": this processor runs " + legal);
}

bool cpu_has_bf16_tiles() {
#if defined(TRIAX_X86_VARIANTS)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22;  // leaf 7, edx
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0;
#else
  return false;
#endif
}

const KernelTable& cpu_kernel_table() {
  const char* wanted = std::getenv("TRIAX_CPU_ISA");
  return cpu_kernel_table(wanted == nullptr || *wanted == '\0' ? nullptr : wanted);
}

}  // namespace triax::kernels
