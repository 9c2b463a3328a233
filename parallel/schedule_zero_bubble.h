// Zero-bubble schedules: backwards split into input gradients (I) and weight gradients (W), which wait to fill bubbles.
#pragma once

#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

/// ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.1): position i of p runs p-1-i forwards, then F and I in turn
/// with W i micro-batches behind I; without forwards left one W after each I; then the rest. At most p micro-batches
/// wait for their W on any position, as 1F1B holds on the first. Bubble at F = I = W: (p-1)(F+I-W).
std::vector<Op> zero_bubble_h1(int pipeline, int position, int num_micro_batches);

/// ZB-H2 (same paper, section 2.2): 2(p-1-i) forwards, W 2i micro-batches behind I; without forwards left one W after
/// each I while more than i wait; then the rest. At most 2p-1 micro-batches wait. At F = I = W no position is idle from
/// its first F to its last W, for m >= 2p-1.
std::vector<Op> zero_bubble_h2(int pipeline, int position, int num_micro_batches);

/// ZB-V (Qi et al. 2024, arXiv 2405.15362, section 4): two chunks in V placement (Placement::VShape), so that position
/// i is both early and late in the model. At most 2p chunk activations (p micro-batches) wait for their W on any
/// position; at F = I = W no position is idle from its first F to its last W, for m >= 2p.
std::vector<Op> zero_bubble_v(int pipeline, int position, int num_micro_batches);

}  // namespace triax::parallel
