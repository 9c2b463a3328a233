#include "base/error.h"

#include <fmt/format.h>

namespace triax {

ApiError::ApiError(std::string_view library, std::string_view call, int code, std::string_view words, const char* file,
                   int line)
    : RunTimeError(fmt::format("{} failed: {} returned {} ({}) at {}:{}", library, call, code, words, file, line)),
      code_(code) {}

void ensure(bool condition, std::string_view what) {
  if (!condition) throw std::logic_error(fmt::format("internal error: {}", what));
}

}  // namespace triax
