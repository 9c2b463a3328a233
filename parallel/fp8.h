// Delayed scaling of fp8 products (arXiv 2209.05433; Transformer Engine's recipe): every linear layer of a transformer
// layer has factors for its input, its weight and the gradient of its output, made from the largest |x| of past steps.
// One row of history is a step: the largest |x| over its micro-batches and over all ranks, so that the factors, and
// with them the numbers, are the same on all replicas. A tensor without history yet is scaled by its present largest
// value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"

namespace triax::parallel {

/// E4M3: all tensors; Hybrid: gradients of outputs in E5M2.
enum class Fp8Format { None, E4M3, Hybrid };
enum class AmaxAlgorithm { MostRecent, Max };

struct Fp8Options {
  Fp8Format format = Fp8Format::None;
  int margin = 0;  ///< factors leave 2^margin of room
  int64_t amax_history_len = 1;
  AmaxAlgorithm algorithm = AmaxAlgorithm::MostRecent;
};

enum class Fp8Place { Qkv, Projection, Expand, Contract };
/// A linear layer; layer -1: its products are not fp8.
struct Fp8Site {
  int64_t layer = -1;
  Fp8Place place = Fp8Place::Qkv;
};
enum class Fp8Part { Input, Weight, Gradient };

class Fp8Scales {
 public:
  /// For `layers` transformer layers, all of the model. Takes 36 bytes of device memory (Workspace) per linear layer.
  Fp8Scales(const Fp8Options& options, int64_t layers, kernels::Device& device, Arena& arena);

  /// Says that this rank holds the site, under the name of (the first of) its weights.
  void hold(Fp8Site site, std::string tensor) { held_.push_back({site, std::move(tensor)}); }
  /// The operands of a product of the site become fp8.
  void set(kernels::Gemm& product, Fp8Site site, Fp8Part a, Fp8Part b) const;

  /// Before a training step: factors from the history to the device, its largest values cleared.
  void start_step();
  /// After it, when the device is done: the largest values of all ranks (all-reduce over `world` on the host, 48 bytes
  /// per layer of the model) become the newest row of the history. What is not finite does not enter.
  void finish_step(comm::Communicator& world);

  /// For checkpoints: the history of what this rank holds, [rows, 3] with the newest row first, and its way back. Other
  /// lengths than amax_history_len are cut, or filled with zeros, which stand for nothing.
  struct Held {
    Fp8Site site;
    std::string tensor;
  };
  const std::vector<Held>& held() const { return held_; }
  int64_t history_len() const { return options_.amax_history_len; }
  std::vector<float> history(Fp8Site site) const;
  void set_history(Fp8Site site, const std::vector<float>& rows);

 private:
  static constexpr int64_t kParts = 3;
  size_t index(Fp8Site site, Fp8Part part) const;
  float& at(int64_t age, size_t index) {
    return history_[static_cast<size_t>((newest_ + age) % history_len()) * count_ + index];
  }
  DType type_of(size_t index) const;
  kernels::Fp8Operand operand(Fp8Site site, Fp8Part part) const;
  void make_factors();

  Fp8Options options_;
  kernels::Device* device_;
  size_t count_;  ///< tensors of the model
  std::vector<float> history_, amax_, factors_;
  std::vector<bool> known_;  ///< has a history
  int64_t newest_ = 0;
  std::vector<Held> held_;
  Buffer memory_;
  Tensor device_factors_, device_amax_;  // [count, 2], [count]
};

}  // namespace triax::parallel
