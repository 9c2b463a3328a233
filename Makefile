# Only calls CMake and scripts. `make demo` and `make check` do everything on a fresh machine; docs/install.md tells the rest.
#   make [PRESET=cpu|cuda|cpu-asan]   build/PRESET/bin/triax      make install PREFIX=/path
#   make demo                         a 3D-parallel run on 8 ranks from nothing
#   make check, make check-long       all tests; with the long sweeps
#   make check-asan                   the emulated GPU's kernels and runtime under sanitizers, in several orders of warps
#   make check-gpu                    on a machine with a GPU: tests and speeds of kernels and training
#   make setup                        look for dependencies, install or list what is missing
#   make corpus, format, tidy, clean
# Variables: JOBS=n, TARGET=names (build that alone), CMAKE_ARGS="-DNAME=VALUE ...", TRIAX_WERROR=ON.
PRESET ?= cpu
PREFIX ?= $(CURDIR)/install
CMAKE_ARGS ?=
TRIAX_WERROR ?=
# One job per core, but not more than fit: a compile takes up to 2 GB.
JOBS ?= $(shell n=$$(nproc); g=$$(awk '/MemAvailable/ {print int($$2 / 2000000)}' /proc/meminfo); \
  [ "$$g" -ge 1 ] || g=1; [ "$$n" -lt "$$g" ] && echo $$n || echo $$g)

build := build/$(PRESET)
cmake_args := $(subst ;,\;,$(CMAKE_ARGS))
configure_args := -DTRIAX_WERROR=$(or $(TRIAX_WERROR),OFF) $(cmake_args)
# Outer make's job server does not reach through cmake --build.
run := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL

# Recipes are parallel inside (JOBS), not among each other: setup may install packages.
.NOTPARALLEL:
.PHONY: all build configure setup demo check check-long check-asan check-gpu corpus format tidy install clean
all: build

setup:
	@scripts/setup.sh $(cmake_args)

# The generator is chosen once: Ninja where it is, unless CMAKE_GENERATOR says otherwise.
configure:
	@[ -f $(build)/.configured ] || scripts/setup.sh $(cmake_args)
	@if [ ! -f $(build)/CMakeCache.txt ] && [ -z "$$CMAKE_GENERATOR" ] && command -v ninja >/dev/null; then \
	  export CMAKE_GENERATOR=Ninja; fi; \
	$(run) cmake --preset $(PRESET) $(configure_args) && touch $(build)/.configured

build: configure
	@$(run) cmake --build --preset $(PRESET) --parallel $(JOBS) $(if $(TARGET),--target $(TARGET))

# The demo needs the program alone, not the tests.
demo: setup configure
	@$(run) cmake --build --preset $(PRESET) --parallel $(JOBS) --target triax
	@launcher=$$(sed -n 's/^MPIEXEC_EXECUTABLE:[^=]*=//p' $(build)/CMakeCache.txt); \
	TRIAX_LAUNCHER="$${TRIAX_LAUNCHER:-$$launcher -n}" scripts/demo.sh $(build)/bin/triax

check: setup build
	@$(run) scripts/check.sh $(PRESET) $(build)

check-long: setup build
	@$(run) scripts/check.sh $(PRESET)-long $(build)

# Minutes, of which most go into building these alone. SEEDS=n: orders and shapes to try.
emulated_programs := cuda_tests triax_cuda_emulated emulated_simt emulated_runtime emulated_sanitizer
check-asan: setup
	@$(MAKE) --no-print-directory PRESET=cpu-asan "TARGET=$(emulated_programs)" build
	@$(run) ctest --test-dir build/cpu-asan -R '^emulated\.' --output-on-failure --no-tests=error --parallel $(JOBS)
	@scripts/check_emulated.sh build/cpu-asan $(or $(SEEDS),3)

# The program where it can be built, for this machine's GPU alone; the kernels in any case.
check-gpu:
	@scripts/check_gpu.sh probe
	@export CHECK_GPU_STARTED=$$(date +%s); \
	$(MAKE) --no-print-directory PRESET=cuda "TARGET=triax cuda_tests cuda_measure" build \
	  "CMAKE_ARGS=-DTRIAX_CUDA_ARCHITECTURES=$$(scripts/gpu_architecture.sh) $(CMAKE_ARGS)" || \
	  echo "check-gpu: the program is not built (above); the kernels alone follow"; \
	scripts/check_gpu.sh run build/gpu "$(CURDIR)/build/cuda"

corpus:
	@scripts/corpus.sh

install: build
	@$(run) cmake --install $(build) --prefix "$(PREFIX)"

format:
	@scripts/lint.sh format

# clang-tidy asks for the command of each source.
tidy: setup
	@$(run) cmake --preset $(PRESET) -B build/tidy $(configure_args) -DTRIAX_UNITY=OFF
	@$(run) cmake --build build/tidy --target triax_commit
	@scripts/lint.sh tidy build/tidy $(JOBS)

clean:
	rm -rf build
