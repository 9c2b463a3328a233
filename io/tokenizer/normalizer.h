// Unicode normal forms (UAX #15), by ICU.
#pragma once

#include <string>
#include <string_view>

namespace triax::io {

enum class NormalForm { None, Nfc, Nfd, Nfkc, Nfkd };

/// "NFC" and so on; "" for None.
std::string_view normal_form_name(NormalForm form);

/// `text`, which must be valid UTF-8, in the normal form; returns a view of `text` itself where nothing changes, else
/// of `buffer`. Text below U+00C0 is never touched by NFC and not looked at by ICU beyond a scan.
std::string_view normalize(NormalForm form, std::string_view text, std::string& buffer);

}  // namespace triax::io
