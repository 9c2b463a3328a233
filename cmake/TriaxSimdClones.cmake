# triax_simd_clones(a.cpp ...): functions of these files marked TRIAX_SIMD_CLONES are built for several instruction sets
# where the compiler can choose between them at run time, and once elsewhere. No contraction: the bits agree on all.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("
  __attribute__((target_clones(\"avx512f\", \"avx2\", \"default\"))) int twice(int x) { return x + x; }
  int main(int argc, char**) { return twice(argc) == 0; }" TRIAX_HAVE_TARGET_CLONES)

function(triax_simd_clones)
  if(TRIAX_HAVE_TARGET_CLONES AND NOT TRIAX_SANITIZE)
    set(clones "__attribute__((target_clones(\"avx512f\",\"avx2\",\"default\")))")
  endif()
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_DEFINITIONS "TRIAX_SIMD_CLONES=${clones}"
    COMPILE_OPTIONS "-O3;-fno-trapping-math;-fno-math-errno;-ffp-contract=off")
endfunction()
