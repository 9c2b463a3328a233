#include "io/trace/flight.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "comm/ledger.h"
#include "parallel/program.h"

namespace triax::io {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr int kOperations = static_cast<int>(comm::Operation::Barrier) + 1;

template <size_t kSize>
std::string text_in(const std::array<char, kSize>& text) {
  return std::string(text.data(), strnlen(text.data(), kSize));
}

double seconds(int64_t ns) { return static_cast<double>(ns) * kNanosecond; }

/// A process of this host that has ended, waited for or not. One that has its number by now is taken for it.
bool is_gone(const FlightRank& r) {
  std::array<char, 256> here{};
  gethostname(here.data(), here.size() - 1);
  if (r.host != here.data()) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", r.pid));
  std::string stat;
  if (!std::getline(file, stat)) return true;
  const size_t name_end = stat.rfind(')');  // "pid (name) state ..."
  return name_end != std::string::npos && name_end + 2 < stat.size() &&
         (stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X');
}

FlightRank rank_of(const FlightHeader& h, const std::string& path) {
  FlightRank r;
  r.path = path;
  r.rank = h.rank;
  r.world = h.world;
  r.pid = h.pid;
  r.supervised = h.parent_pid != 0;
  r.host = text_in(h.host);
  r.place = text_in(h.place);
  r.start_s = seconds(h.start_monotonic_ns);
  r.start_epoch_s = seconds(h.start_realtime_ns);
  r.timeout_s = h.timeout_s;
  r.iteration = h.iteration.load();
  r.completed = h.completed.load() != 0;
  r.leaving = h.leaving.load();
  r.signal = h.signal.load();
  if (h.unguarded_since_ns.load() != 0) r.unguarded = text_in(h.unguarded);
  r.failure.kind = static_cast<FailureKind>(h.failure_kind.load());
  if (r.failure.kind != FailureKind::None) {
    r.failure.time_s = seconds(h.failure_time_ns);
    r.failure.words = text_in(h.failure_words);
  }
  r.end = static_cast<EndKind>(h.end.kind.load());
  if (r.end != EndKind::None) {
    r.end_value = h.end.value;
    r.end_s = seconds(h.end.time_ns);
  }
  r.stop_signal = h.end.stop_signal.load();
  if (r.stop_signal != 0) r.stopped_s = seconds(h.end.stopped_ns);
  r.gone = is_gone(r);
  return r;
}

FlightRow row_of(const FlightRecord& record, const FlightHeader& header) {
  FlightRow row;
  row.ticket = record.ticket.load();
  row.time_s = seconds(record.time_ns);
  row.event = static_cast<FlightEvent>(record.event);
  row.kind = static_cast<FlightKind>(record.kind);
  row.lane = static_cast<FlightLane>(record.lane);
  row.code = record.code;
  if (row.kind == FlightKind::Communication && record.name < header.names.size()) {
    row.group = text_in(header.names[record.name]);
  }
  row.number = record.number;
  row.step = record.step;
  row.micro_batch = record.micro_batch;
  row.chunk = record.chunk;
  return row;
}

bool known(const FlightRow& row) {
  const int limit = row.kind == FlightKind::Phase           ? kFlightPhases
                    : row.kind == FlightKind::Op            ? parallel::kNumOpKinds
                    : row.kind == FlightKind::Communication ? kOperations
                                                            : 0;
  return row.code < limit && (row.event == FlightEvent::Begin || row.event == FlightEvent::End);
}

bool same(const FlightRow& a, const FlightRow& b) {
  return a.kind == b.kind && a.lane == b.lane && a.code == b.code && a.number == b.number && a.group == b.group &&
         a.micro_batch == b.micro_batch && a.chunk == b.chunk;
}

bool of_micro_batch(parallel::OpKind kind) {
  return kind == parallel::OpKind::LoadBatch || parallel::is_compute(kind) || parallel::is_send(kind) ||
         parallel::is_receive(kind) || parallel::is_message_gather(kind);
}

const FlightRow* last_of(const std::vector<FlightRow>& open, FlightKind kind) {
  for (auto row = open.rbegin(); row != open.rend(); ++row) {
    if (row->kind == kind && row->lane == FlightLane::Caller) return &*row;
  }
  return nullptr;
}

}  // namespace

std::string describe(const FlightRow& row) {
  switch (row.kind) {
    case FlightKind::Phase:
      return fmt::format("phase {}", name_of(static_cast<FlightPhase>(row.code)));
    case FlightKind::Op: {
      std::string text = fmt::format("step {} op {} {}", row.step, row.number,
                                     parallel::name_of(static_cast<parallel::OpKind>(row.code)));
      if (row.chunk > 0) text += fmt::format(" chunk {}", row.chunk);
      if (row.micro_batch >= 0 && of_micro_batch(static_cast<parallel::OpKind>(row.code)))
        text += fmt::format(" micro-batch {}", row.micro_batch);
      return text;
    }
    case FlightKind::Communication:
      break;
  }
  const char* operation = comm::name_of(static_cast<comm::Operation>(row.code));
  if (row.number == 0) return fmt::format("{} of {} in the background", operation, row.group);
  return fmt::format("{} #{} of {}", operation, row.number, row.group);
}

FlightRank read_flight(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RunTimeError(fmt::format("{}: cannot be read", path));
  // Aligned as the structs ask for.
  std::vector<FlightHeader::End> memory((kFlightFileBytes + sizeof(FlightHeader::End) - 1) / sizeof(FlightHeader::End));
  auto* bytes = reinterpret_cast<char*>(memory.data());
  file.read(bytes, static_cast<std::streamsize>(kFlightFileBytes));
  const auto* header = reinterpret_cast<const FlightHeader*>(bytes);
  if (file.gcount() != static_cast<std::streamsize>(kFlightFileBytes) || header->magic != kFlightMagic) {
    throw RunTimeError(fmt::format("{}: is not a flight recorder's file", path));
  }
  if (header->version != kFlightVersion || header->record_bytes != sizeof(FlightRecord) ||
      header->records != kFlightRecords || header->header_bytes != kFlightHeaderBytes) {
    throw RunTimeError(fmt::format("{}: version {} of the flight recorder's file; this program reads version {}", path,
                                   header->version, kFlightVersion));
  }
  FlightRank rank = rank_of(*header, path);
  const auto* records = reinterpret_cast<const FlightRecord*>(bytes + kFlightHeaderBytes);
  for (uint32_t i = 0; i < kFlightRecords; ++i) {
    const uint64_t ticket = records[i].ticket.load();
    if (ticket == 0 || (ticket - 1) % kFlightRecords != i) continue;
    FlightRow row = row_of(records[i], *header);
    if (known(row)) rank.rows.push_back(std::move(row));
  }
  std::sort(rank.rows.begin(), rank.rows.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return rank;
}

std::vector<FlightRank> read_flights(const std::string& run_directory) {
  const std::string directory = flight_directory(run_directory);
  std::vector<FlightRank> ranks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".flight") ranks.push_back(read_flight(entry.path().string()));
  }
  if (ranks.empty()) {
    throw ConfigError(
        fmt::format("{}: holds no flight recorder's files (rank-*.flight); name the run directory of "
                    "triax train",
                    directory));
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return ranks;
}

const FlightRow* FlightState::waits() const { return last_of(open, FlightKind::Communication); }
const FlightRow* FlightState::op() const { return last_of(open, FlightKind::Op); }
const FlightRow* FlightState::phase() const { return last_of(open, FlightKind::Phase); }

FlightState state_of(const FlightRank& rank) {
  FlightState state;
  state.last_s = rank.start_s;
  for (const FlightRow& row : rank.rows) {
    state.last_s = std::max(state.last_s, row.time_s);
    if (row.event == FlightEvent::Begin) {
      state.open.push_back(row);
      continue;
    }
    if (row.kind == FlightKind::Op) state.last_op = row;
    const auto begun =
        std::find_if(state.open.rbegin(), state.open.rend(), [&](const auto& o) { return same(o, row); });
    if (begun != state.open.rend()) state.open.erase(std::next(begun).base());
  }
  return state;
}

}  // namespace triax::io
