# Helpers of TriaxDependencies.cmake.

# triax_need(KEY VARIABLE [reason]): notes KEY as missing unless VARIABLE is true; the reason is for what was found but
# cannot be used.
macro(triax_need key variable)
  if(NOT ${variable})
    list(APPEND TRIAX_MISSING ${key})
    if("${ARGC}" GREATER 2)
      set(TRIAX_MISSING_${key} "${ARGV2}")
    endif()
  endif()
endmacro()

# triax_recommend(KEY VARIABLE): says that KEY would be good to have unless VARIABLE is true.
macro(triax_recommend key variable)
  if(NOT ${variable})
    message(STATUS "recommended: ${key}")
  endif()
endmacro()

# triax_find_pkg(HWLOC "hwloc>=2.1" hwloc.h hwloc): target PkgConfig::HWLOC and HWLOC_FOUND, from pkg-config where a .pc
# file exists, else from the header and the library.
function(triax_find_pkg name module header library)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL ${module})
  endif()
  if(NOT ${name}_FOUND)
    string(REGEX REPLACE ">.*" "" plain "${module}")
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(TRIAX_OLD_${name} QUIET ${plain})
    endif()
    find_path(TRIAX_${name}_INCLUDE ${header})
    find_library(TRIAX_${name}_LIBRARY ${library})
    mark_as_advanced(TRIAX_${name}_INCLUDE TRIAX_${name}_LIBRARY)
    if(TRIAX_${name}_INCLUDE AND TRIAX_${name}_LIBRARY AND NOT TRIAX_OLD_${name}_FOUND)
      add_library(PkgConfig::${name} INTERFACE IMPORTED GLOBAL)
      target_include_directories(PkgConfig::${name} INTERFACE ${TRIAX_${name}_INCLUDE})
      target_link_libraries(PkgConfig::${name} INTERFACE ${TRIAX_${name}_LIBRARY})
      set(${name}_FOUND TRUE)
    endif()
  endif()
  set(${name}_FOUND ${${name}_FOUND} PARENT_SCOPE)
  set(${name}_VERSION "${${name}_VERSION}" PARENT_SCOPE)
endfunction()

# In the probe: one line per missing key. In a configure: one error that names them all.
function(triax_report_missing)
  if(NOT TRIAX_MISSING)
    return()
  endif()
  set(text "")
  foreach(key ${TRIAX_MISSING})
    string(APPEND text "\nmissing: ${key}")
    if(TRIAX_MISSING_${key})
      string(APPEND text " (${TRIAX_MISSING_${key}})")
    endif()
  endforeach()
  if(TRIAX_PROBE)
    message(STATUS "probe:${text}")
  else()
    message(FATAL_ERROR "Triax needs libraries that are not found here.${text}\n"
      "'make setup' installs them as root on Debian or Ubuntu, and elsewhere names the packages of Debian, RHEL, Spack "
      "and conda. A library in a folder of its own is found through CMAKE_PREFIX_PATH. See docs/install.md.")
  endif()
endfunction()

# triax_not_built("CUDA: no nvcc"): what this build leaves out and why; `make check` repeats it (build/PRESET/not-built.txt).
function(triax_not_built text)
  file(APPEND ${CMAKE_BINARY_DIR}/not-built.txt "${text}\n")
endfunction()
