// `triax sweep --paper`: published beside predicted.
#pragma once

#include <string>
#include <vector>

namespace triax::apps {

/// Whether the arguments of `triax sweep` ask for it.
bool asks_for_paper(const std::vector<std::string>& args);
/// --paper NAME|all|fit|list [--papers DIR] [--format table|json|csv] [--rows]. Returns the exit code.
int sweep_paper(const std::vector<std::string>& args);

}  // namespace triax::apps
