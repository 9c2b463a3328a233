# make install PREFIX=: the program with its manual page and shell completion, its presets and job scripts, a module file, its
# licence and documents. The program finds its libraries by RPATH and needs no other file.
include(GNUInstallDirs)
if(TARGET triax)
  set_target_properties(triax PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS triax RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Written by the program itself, from its table of options.
  set(made ${CMAKE_BINARY_DIR}/made)
  file(MAKE_DIRECTORY ${made})
  add_custom_command(OUTPUT ${made}/triax.1 ${made}/triax.bash DEPENDS triax VERBATIM
    COMMAND triax options --man > ${made}/triax.1
    COMMAND triax options --completion bash > ${made}/triax.bash)
  add_custom_target(triax_made ALL DEPENDS ${made}/triax.1 ${made}/triax.bash)
  install(FILES ${made}/triax.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${made}/triax.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME triax)
  # The prefix is known when it is installed.
  install(CODE "
    set(TRIAX_PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
    set(TRIAX_VERSION ${PROJECT_VERSION})
    configure_file(${CMAKE_SOURCE_DIR}/packaging/modulefile.in
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/modulefiles/triax/${PROJECT_VERSION}\" @ONLY)")
endif()
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/triax)
install(DIRECTORY jobs DESTINATION ${CMAKE_INSTALL_DATADIR}/triax PATTERN site.sh EXCLUDE)
install(FILES LICENSE README.md CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
