# Tests of the training layer.
triax_mpi_test(train_parity 1 2 4 8)
triax_mpi_test(train_algorithms 2 4)
triax_mpi_test(train_zero 2 4 8)
triax_mpi_test(train_zero_volume 2 4 8)
triax_mpi_test(train_parameter_server 2 4 8)
triax_mpi_test(train_storm 5 6 7 8)
triax_mpi_test(train_steps 2 4)
triax_mpi_test(train_checkpoint 2 4 8)
triax_mpi_test(train_virtual_clock 2 3 4 8)
triax_mpi_test(train_data_setup 2 4)

# The whole parity matrix (408 layouts), and every triple of ZeRO's settings: ctest -L long, left out of `make check`.
foreach(program train_parity train_zero)
  foreach(ranks 1 2 4 8)
    if(program STREQUAL train_zero AND ranks EQUAL 1)
      continue()
    endif()
    set(test long.${program}.np${ranks})
    add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:mpi.${program}>)
    set_tests_properties(${test} PROPERTIES LABELS "long;np${ranks}" TIMEOUT 3600 PROCESSORS ${ranks}
      ENVIRONMENT "OMP_NUM_THREADS=1;TRIAX_PARITY=all;ASAN_OPTIONS=detect_leaks=0")
  endforeach()
endforeach()
