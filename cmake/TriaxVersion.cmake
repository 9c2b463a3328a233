# base/version.cpp alone sees what changes from build to build: triax_build.h (set at configure) and triax_commit.h (the
# commit, looked up by every build, rewritten only when it moved).
set(triax_generated ${CMAKE_BINARY_DIR}/generated)
string(TOUPPER "${CMAKE_BUILD_TYPE}" triax_type)
set(triax_flags_text "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${triax_type}}")
string(STRIP "${triax_flags_text}" triax_flags_text)
string(REPLACE "\"" "\\\"" triax_flags_text "${triax_flags_text}")
if(TRIAX_SANITIZE)
  string(APPEND triax_flags_text " -fsanitize=${TRIAX_SANITIZE}")
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/triax_build.h.in ${triax_generated}/triax_build.h @ONLY)
find_program(TRIAX_GIT git)
mark_as_advanced(TRIAX_GIT)
add_custom_target(triax_commit
  COMMAND ${CMAKE_COMMAND} -DGIT=${TRIAX_GIT} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${triax_generated}/triax_commit.h
    -P ${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake
  BYPRODUCTS ${triax_generated}/triax_commit.h
  COMMENT "Looking up the commit" VERBATIM)
add_dependencies(triax_base triax_commit)
target_include_directories(triax_base PRIVATE ${triax_generated})
