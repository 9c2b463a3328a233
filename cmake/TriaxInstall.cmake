# make install PREFIX=: the program, its presets and job scripts, its licence and documents. The program finds its libraries
# by RPATH and needs no other file.
include(GNUInstallDirs)
if(TARGET triax)
  set_target_properties(triax PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS triax RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(folder configs jobs)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/triax)
  endif()
endforeach()
install(FILES LICENSE README.md CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
