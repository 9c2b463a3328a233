// The ranks of a run as a picture: a column per pipeline position, a row per replica, a box per tensor rank.
#pragma once

#include <string>

#include "plan/report/run_data.h"

namespace triax::plan {

/// Inline SVG; boxes hold world ranks, colours are hosts, heads say which layers a position holds. Wide layouts show
/// the first 8 positions, 4 replicas and 8 tensor ranks, and say how many there are. Empty where resolved.cfg was not
/// readable.
std::string layout_svg(const RunData& run);

}  // namespace triax::plan
