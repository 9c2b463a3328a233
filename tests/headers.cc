// The program whose precompiled headers the tests use (tests/CMakeLists.txt). It has no tests.
