# Tests of the training layer.
triax_mpi_test(train_parity 1 2 4 8)
triax_mpi_test(train_algorithms 2 4)
triax_mpi_test(train_zero 2 4 8)
triax_mpi_test(train_storm 5 6 7 8)
triax_mpi_test(train_steps 2 4)
triax_mpi_test(train_checkpoint 2 4 8)
triax_mpi_test(train_virtual_clock 2 3 4 8)
triax_mpi_test(train_data_setup 2 4)

# The whole parity matrix (408 layouts): ctest -L long, left out of `make check`.
foreach(ranks 1 2 4 8)
  set(test long.train_parity.np${ranks})
  add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:mpi.train_parity>)
  set_tests_properties(${test} PROPERTIES LABELS "long;np${ranks}" TIMEOUT 3600 PROCESSORS ${ranks}
    ENVIRONMENT "OMP_NUM_THREADS=1;TRIAX_PARITY=all;ASAN_OPTIONS=detect_leaks=0")
endforeach()
