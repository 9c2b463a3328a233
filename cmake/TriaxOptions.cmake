# Compiler settings shared by every target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(TRIAX_WERROR "Treat warnings as errors" OFF)
option(TRIAX_UNITY "Compile the layers' and the program's sources twelve to a translation unit" ON)
set(TRIAX_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(triax_flags INTERFACE)
target_include_directories(triax_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(triax_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-unknown-pragmas>
  $<$<BOOL:${TRIAX_WERROR}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings,-Werror>>)
# GCC looks for memory to free from 128 MB on, a tenth of its time; a translation unit here takes less than this.
target_compile_options(triax_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
if(TRIAX_SANITIZE)
  target_compile_options(triax_flags INTERFACE -fsanitize=${TRIAX_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(triax_flags INTERFACE -fsanitize=${TRIAX_SANITIZE})
endif()

# triax_unity(TARGET): compiles its C++ sources in batches where TRIAX_UNITY says so. CMake leaves out those with options
# of their own. What an anonymous namespace holds is then seen by other sources of the layer: its names are the layer's.
function(triax_unity target)
  if(NOT TRIAX_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  # GCC takes every source in a batch for a header, which may be in two translation units.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
