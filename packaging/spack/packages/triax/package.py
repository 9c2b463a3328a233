# From a clone of the sources:
#   spack repo add packaging/spack && spack dev-build --source-path . triax@main
from spack.package import *


class Triax(CMakePackage, CudaPackage):
    """Trains GPT- and Llama-style transformers over tensor, pipeline and data parallel ranks on MPI."""

    has_code = False  # no archive to fetch: dev-build gives the sources

    license("Apache-2.0")

    version("main")

    variant("onednn", default=True, description="GEMM in fp32 and bf16 by oneDNN, not OpenBLAS alone")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    # The wait loops know MPICH and its relatives (docs/install.md).
    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10:+mpi")
    depends_on("boost@1.71:+program_options+context")
    depends_on("fmt@8.1:")
    depends_on("spdlog@1.9:")
    depends_on("nlohmann-json@3.9:")
    depends_on("hwloc@2.1:")
    depends_on("openblas@0.3.15:")
    depends_on("onednn@2.6:3", when="+onednn")
    depends_on("sentencepiece@0.1.96:")
    depends_on("pcre2@10.30:")
    depends_on("icu4c@60:")
    depends_on("zstd@1.4:")
    depends_on("zlib-api")
    depends_on("xxhash@0.8:")
    depends_on("nccl", when="+cuda")
    depends_on("googletest@1.10:+gmock", type="test")

    conflicts("%gcc@:10", msg="C++20")
    conflicts("%clang@:13", msg="C++20")

    def cmake_args(self):
        args = [
            self.define_from_variant("TRIAX_WITH_CUDA", "cuda"),
            self.define("TRIAX_WITH_DNNL", "ON" if self.spec.satisfies("+onednn") else "OFF"),
            self.define("BUILD_TESTING", self.run_tests),
        ]
        if self.spec.satisfies("+cuda") and "none" not in self.spec.variants["cuda_arch"].value:
            args.append(self.define("TRIAX_CUDA_ARCHITECTURES", ";".join(self.spec.variants["cuda_arch"].value)))
        return args
