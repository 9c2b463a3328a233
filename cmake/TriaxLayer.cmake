# triax_layer(base LINK fmt::fmt ...): the static library of the folder that calls it, of all .cpp files in it
# and below it, but not of folders named cuda. Files of a layer include from the repository's root.
function(triax_layer name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  # Relative, so that a checkout below a folder named cuda keeps its sources.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  list(FILTER sources EXCLUDE REGEX "(^|/)cuda/")
  if(NOT sources)  # a layer of headers only
    add_library(triax_${name} INTERFACE)
    target_link_libraries(triax_${name} INTERFACE triax_flags ${ARG_LINK})
    return()
  endif()
  add_library(triax_${name} STATIC ${sources})
  target_link_libraries(triax_${name} PUBLIC triax_flags ${ARG_LINK})
  # What runs for every element lies in kernels and comm; the others compile faster.
  if(NOT name MATCHES "^(kernels|comm)$")
    target_compile_options(triax_${name} PRIVATE $<$<CONFIG:Release>:-O2>)
  endif()
  triax_unity(triax_${name})
endfunction()
