#include "io/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include "base/error.h"

namespace triax::io {
namespace {

const icu::Normalizer2& instance(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;  // owned by ICU
  switch (form) {
    case NormalForm::Nfc:
      found = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::Nfd:
      found = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::Nfkc:
      found = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::Nfkd:
      found = icu::Normalizer2::getNFKDInstance(status);
      break;
    case NormalForm::None:
      break;
  }
  if (U_FAILURE(status) || !found)
    throw ApiError("ICU", "Normalizer2", status, u_errorName(status), __FILE__, __LINE__);
  return *found;
}

}  // namespace

std::string_view normal_form_name(NormalForm form) {
  switch (form) {
    case NormalForm::Nfc:
      return "NFC";
    case NormalForm::Nfd:
      return "NFD";
    case NormalForm::Nfkc:
      return "NFKC";
    case NormalForm::Nfkd:
      return "NFKD";
    case NormalForm::None:
      break;
  }
  return "";
}

std::string_view normalize(NormalForm form, std::string_view text, std::string& buffer) {
  if (form == NormalForm::None || text.empty()) return text;
  const auto& normalizer = instance(form);
  UErrorCode status = U_ZERO_ERROR;
  size_t done = 0;  // ICU counts bytes in 32 bits, so longer texts go in parts that end between ASCII letters
  constexpr size_t kPart = size_t{1} << 28;
  buffer.clear();
  bool changed = false;
  while (done < text.size()) {
    size_t end = std::min(text.size(), done + kPart);
    while (end < text.size() && end > done + 1 && (text[end] & 0x80 || text[end - 1] & 0x80)) --end;
    const icu::StringPiece part(text.data() + done, static_cast<int32_t>(end - done));
    if (changed || !normalizer.isNormalizedUTF8(part, status)) {
      if (!changed) buffer.assign(text.substr(0, done));
      changed = true;
      icu::StringByteSink<std::string> sink(&buffer);
      normalizer.normalizeUTF8(0, part, sink, nullptr, status);
    }
    if (U_FAILURE(status)) throw ApiError("ICU", "normalizeUTF8", status, u_errorName(status), __FILE__, __LINE__);
    done = end;
  }
  return changed ? std::string_view(buffer) : text;
}

}  // namespace triax::io
