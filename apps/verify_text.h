// A finished run beside its prediction, for `sim --verify` and `plan --verify`.
#pragma once

#include <string>

#include "apps/entry_makers.h"
#include "bench/hardware.h"

namespace triax::apps {

/// Prints plan::verify_run() of the directory, to `out` where it is not empty. Returns the exit code.
int print_verification(const std::string& directory, const bench::Hardware& hardware, Format format,
                       const std::string& out);

}  // namespace triax::apps
