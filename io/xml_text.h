// Text inside of XML and HTML.
#pragma once

#include <string>

namespace triax::io {

/// &, <, > and " as entities: for the text of an element and for the value of an attribute.
std::string escaped(const std::string& text);

}  // namespace triax::io
