// Costs as users write them: "F=1,I=1,W=1,P2P=0.5", with lists "F=1,1.5,1,1,I=1" of one value per stage.
#pragma once

#include <string>

#include "parallel/cost_table.h"
#include "parallel/time_model.h"

namespace triax::parallel {

struct TextCosts {
  UniformCosts costs;
  int64_t unit_ps = 0;  ///< picoseconds that stand for 1
};

/// F, I, W (default 1); B = I + W in equal parts; R, LOAD, OPT, REDUCE_GRAD (of each bucket), SUM_TP, SUM_TIED, NORM,
/// P2P (latency of a hop), BYTES (of a message), BANDWIDTH (bytes in a unit of time); all others default 0. Values that
/// follow without a name continue the list; ':' parts values too. The unit is a second, less where `num_micro_batches`
/// steps over `stages` stages would not fit into 63 bits of picoseconds.
/// Throws ConfigError naming the word, the rule and the legal words.
TextCosts parse_costs(const std::string& text, int stages, int num_micro_batches);

/// "REPLICA:POSITION:FACTOR", for example "0:3:1.5"; throws ConfigError for other words.
Straggler parse_straggler(const std::string& word);

}  // namespace triax::parallel
