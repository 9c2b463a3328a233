// Programs and their ops as text for people: names of ops, lists, machine-readable dumps.
#pragma once

#include <string>

#include "parallel/program.h"

namespace triax::parallel {

/// PyTorch's action syntax: "<virtual stage>F<micro-batch>", "3SEND_B1"; without a micro-batch "2REDUCE_GRAD.0"
/// (bucket), "0SUM_TP", "NORM".
std::string text_of(const LayerMap& layers, int position, const Op& op);

/// "position 2, op 17 (2B3)": how faults name an op.
std::string place_of(const Program& program, int position, int index);

/// Which ops a list shows.
enum class ShowOps { Compute, All };

/// One line per position: "Rank 0: 0F0 0F1 0B0 ...".
std::string list_of(const Program& program, ShowOps which);

/// unit_ops() of every position: first its blocks (units, gathered or resident), then one line per op in which
/// something happens: "  0F0: GATHER block 1, F unit 0, RELEASE block 1".
std::string inside_of(const Program& program);

}  // namespace triax::parallel
