// Hopper's asynchronous parts of the emulated machine (include/simt_hopper.h).
#include <simt_hopper.h>

#include <algorithm>
#include <array>

#include "machine.h"

namespace triax::simt {
namespace {

void need_hopper(const char* what) {
  if (emulated_capability() / 10 != 9) throw KernelFault(std::string(what) + " needs compute capability 9.0");
}

Mbarrier& mbarrier_at(const void* at, const char* what) {
  need_hopper("mbarrier");
  const auto found = machine.mbarriers.find(at);
  if (found == machine.mbarriers.end()) throw KernelFault(std::string(what) + ": no mbarrier was made here");
  return found->second;
}

bool ended(const Mbarrier& b, unsigned parity) { return (b.phase & 1) != parity; }

/// Ends the phase when nothing is missing, and wakes those who wait for that.
void end_phase(Mbarrier& b) {
  if (b.pending > 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.arrivals;
  machine.wake_waiting(b);
}

/// Where the byte of an unswizzled address lies.
unsigned swizzled(unsigned address, unsigned row_bytes) {
  return row_bytes == 128 ? address ^ (address >> 7 & 7) << 4 : address ^ (address >> 7 & 3) << 4;
}

unsigned char* shared_at(unsigned address, unsigned bytes) {
  const unsigned offset = address - machine.shared_offset;
  if (address < machine.shared_offset || offset + bytes > machine.asked_shared) {
    throw KernelFault("shared memory address " + std::to_string(address) + " is outside of the block's");
  }
  return dynamic_shared() + offset;
}

/// An operand of wgmma in shared memory: element (i, k), i a row of the left or a column of the right.
struct Operand {
  unsigned start, part, eight, row_bytes;
  bool k_contiguous;

  Operand(uint64_t descriptor, bool k_contiguous_)
      : start(static_cast<unsigned>(descriptor & 0x3fff) << 4),
        part(static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4),
        eight(static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4),
        row_bytes(descriptor >> 62 == 1 ? 128 : 64),
        k_contiguous(k_contiguous_) {
    if (descriptor >> 62 == 0 || descriptor >> 62 == 3 || (descriptor >> 49 & 7) != 0) {
      throw KernelFault("wgmma: a descriptor with a swizzle or base offset that is not emulated");
    }
    if (start % (8 * row_bytes) >= row_bytes)
      throw KernelFault("wgmma: an operand does not begin where its swizzle does");
  }
  uint16_t bits(unsigned i, unsigned k) const {
    const unsigned row = k_contiguous ? i : k, col = k_contiguous ? k : i, cols = row_bytes / 2;
    // Where k is contiguous a row is never left: the start alone says which 16 of its columns are meant.
    const unsigned address =
        start + row / 8 * eight + row % 8 * row_bytes + (k_contiguous ? 2 * col : col / cols * part + col % cols * 2);
    uint16_t v;
    std::memcpy(&v, shared_at(swizzled(address, row_bytes), 2), 2);
    return v;
  }
};

void perform(const LaneProduct& p, float* sums, unsigned thread) {
  const unsigned g = thread % 32 / 4, t = thread % 4, row = thread / 32 % 4 * 16 + g;
  std::array<std::array<float, 16>, 2> left;
  if (p.left_shared) {
    const Operand a(p.left, true);
    for (unsigned k = 0; k < 16; ++k) {
      left[0][k] = p.value(a.bits(row, k));
      left[1][k] = p.value(a.bits(row + 8, k));
    }
  } else {
    std::memcpy(left.data(), p.left_rows, sizeof p.left_rows);
  }
  const Operand b(p.right, p.left_shared);
  for (unsigned n = 0; n < static_cast<unsigned>(p.tiles); ++n) {
    for (unsigned c = 0; c < 2; ++c) {
      float* const at = sums + 4 * n + c;
      float upper = p.accumulate ? at[0] : 0, lower = p.accumulate ? at[2] : 0;
      for (unsigned k = 0; k < 16; ++k) {
        const float factor = p.value(b.bits(8 * n + 2 * t + c, k));
        upper += left[0][k] * factor;
        lower += left[1][k] * factor;
      }
      at[0] = upper;
      at[2] = lower;
    }
  }
}

/// Performs what the thread has issued and not yet performed, in order.
void perform_issued(Thread& t, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Issued& issued = t.products[i];
    if (!issued.done) perform(issued.product, t.sums.at(issued.product.sums).data(), t.linear);
    issued.done = true;
  }
}

void land(const BoxCopy& c) {
  const CUtensorMap& m = c.tensor;
  const unsigned row_bytes = 2 * m.box[0];
  unsigned row = 0;
  for (unsigned i3 = 0; i3 < m.box[3]; ++i3) {
    for (unsigned i2 = 0; i2 < m.box[2]; ++i2) {
      for (unsigned i1 = 0; i1 < m.box[1]; ++i1, ++row) {
        for (unsigned i0 = 0; i0 < m.box[0]; ++i0) {
          const int64_t at[4] = {c.at[0] + int64_t{i0}, c.at[1] + int64_t{i1}, c.at[2] + int64_t{i2},
                                 c.at[3] + int64_t{i3}};
          bool inside = true;
          const unsigned char* from = m.address;
          for (int d = 0; d < 4; ++d) {
            inside = inside && at[d] >= 0 && at[d] < int64_t{m.extent[d]};
            from += at[d] * (d == 0 ? 2 : static_cast<int64_t>(m.stride[d - 1]));
          }
          unsigned char* const to = shared_at(swizzled(c.to + row * row_bytes + 2 * i0, m.row_bytes), 2);
          if (inside) {
            std::memcpy(to, from, 2);
          } else {
            std::memset(to, 0, 2);
          }
        }
      }
    }
  }
  Mbarrier& b = machine.mbarriers.at(c.barrier);
  b.bytes -= static_cast<int64_t>(row) * row_bytes;
  end_phase(b);
}

}  // namespace

bool Machine::land_box() {
  if (boxes.empty()) return false;
  const size_t i = random_() % boxes.size();
  const BoxCopy copy = boxes[i];
  boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(i));
  land(copy);
  return true;
}

void Machine::wake_waiting(const Mbarrier& barrier) {
  for (unsigned i = 0; i < count_; ++i) {
    Thread& t = threads_[i];
    if (t.state == State::AtMbarrier && t.mbarrier == &barrier && ended(barrier, t.parity)) t.state = State::Ready;
  }
}

unsigned shared_address(const void* shared) {
  const auto* const p = static_cast<const unsigned char*>(shared);
  return static_cast<unsigned>(p - dynamic_shared()) + machine.shared_offset;
}

void barrier_init(const void* barrier, int arrivals) {
  need_hopper("mbarrier");
  if (arrivals < 1) throw KernelFault("mbarrier: a count of " + std::to_string(arrivals));
  machine.mbarriers[barrier] = {arrivals, arrivals};
}

void fence_async_proxy() {
  for (auto& [at, barrier] : machine.mbarriers) barrier.fenced = true;
}

void barrier_arrive(const void* barrier, unsigned bytes) {
  Mbarrier& b = mbarrier_at(barrier, "arrive");
  if (b.pending == 0) throw KernelFault("mbarrier: more arrivals in a phase than its count");
  b.bytes += bytes;
  --b.pending;
  end_phase(b);
}

void wait_barrier(const void* barrier, unsigned parity, const char* file, int line) {
  const Mbarrier& b = mbarrier_at(barrier, "wait");
  if (ended(b, parity)) return;
  machine.running->mbarrier = &b;
  machine.running->parity = parity;
  wait_as(State::AtMbarrier, 0, file, line);
}

void copy_box(void* shared, const CUtensorMap& tensor, const int (&at)[4], const void* barrier) {
  if (!mbarrier_at(barrier, "copy").fenced) throw KernelFault("a copy to an mbarrier that no fence made visible to it");
  const unsigned to = shared_address(shared);
  if (to % (8 * tensor.row_bytes) != 0) throw KernelFault("a copy does not begin where its swizzle does");
  const unsigned bytes = 2 * tensor.box[0] * tensor.box[1] * tensor.box[2] * tensor.box[3];
  std::memset(shared_at(to, bytes), 0xff, bytes);  // whoever still reads it, or reads too early, gets NaN
  machine.boxes.push_back({to, tensor, {at[0], at[1], at[2], at[3]}, barrier});
}

void issue_product(const LaneProduct& product) {
  need_hopper("wgmma");
  Thread& t = *machine.running;
  const auto count = static_cast<size_t>(product.tiles) * 4;
  if (t.sums.find(product.sums) == t.sums.end()) {
    if (!t.products_fenced) throw KernelFault("wgmma without wgmma.fence after its registers may have been written");
    t.sums[product.sums].assign(product.sums, product.sums + count);
    std::memset(product.sums, 0xff, count * sizeof(float));
  }
  t.products.push_back({product, t.product_groups, false});
  if (machine.by_chance()) perform_issued(t, t.products.size());
}

void products_fence() {
  share(0xffffffffu, nullptr, 0, "wgmma.fence", 0);
  machine.running->products_fenced = true;
}
void products_commit() { ++machine.running->product_groups; }

void products_wait(size_t groups_left) {
  Thread& t = *machine.running;
  size_t done = 0;
  while (done < t.products.size() && t.products[done].group + groups_left < t.product_groups) ++done;
  perform_issued(t, done);
  std::vector<float*> finished;
  for (size_t i = 0; i < done; ++i) finished.push_back(t.products[i].product.sums);
  t.products.erase(t.products.begin(), t.products.begin() + static_cast<std::ptrdiff_t>(done));
  for (float* const sums : finished) {
    const auto same = [&](const Issued& issued) { return issued.product.sums == sums; };
    const auto at = t.sums.find(sums);
    if (at == t.sums.end() || std::any_of(t.products.begin(), t.products.end(), same)) continue;
    std::copy(at->second.begin(), at->second.end(), sums);
    t.sums.erase(at);
  }
  t.products_fenced = false;
}

}  // namespace triax::simt
