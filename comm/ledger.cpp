#include "comm/ledger.h"

namespace triax::comm {

const char* name_of(Operation op) {
  switch (op) {
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::Reduce:
      return "reduce";
    case Operation::AllGather:
      return "all_gather";
    case Operation::ReduceScatter:
      return "reduce_scatter";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::AllToAll:
      return "all_to_all";
    case Operation::Send:
      return "send";
    case Operation::Recv:
      return "recv";
    case Operation::Barrier:
      return "barrier";
  }
  return "?";
}

double sent_bytes(Operation op, int64_t payload_bytes, int group_size) {
  const auto payload = static_cast<double>(payload_bytes);
  const double n = group_size;
  if (group_size == 1) return 0;
  switch (op) {
    case Operation::AllReduce:
      return 2 * (n - 1) / n * payload;
    case Operation::AllGather:
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return (n - 1) / n * payload;
    case Operation::Reduce:
    case Operation::Broadcast:
    case Operation::Send:
      return payload;
    case Operation::Recv:
    case Operation::Barrier:
      return 0;
  }
  return 0;
}

void Ledger::set_label(const char* label) {
  const std::lock_guard lock(mutex_);
  label_ = label;
}

const char* Ledger::label() const {
  const std::lock_guard lock(mutex_);
  return label_;
}

LedgerEntry* Ledger::labelled_entry(const std::string& group, Operation op, const char* label) {
  return label != nullptr && group == "tp" ? &labelled_[{label, op}] : nullptr;
}

std::map<Ledger::Key, LedgerEntry> Ledger::labelled() const {
  const std::lock_guard lock(mutex_);
  return labelled_;
}

void Ledger::record(const std::string& group, Operation op, int64_t payload_bytes, double sent, double busy_s) {
  const std::lock_guard lock(mutex_);
  for (LedgerEntry* entry : {&entries_[{group, op}], labelled_entry(group, op, label_)}) {
    if (entry == nullptr) continue;
    ++entry->calls;
    entry->payload_bytes += payload_bytes;
    entry->sent_bytes += sent;
    ++entry->converted_calls;
    entry->busy_s += busy_s;
  }
}

void Ledger::record_counted(const std::string& group, Operation op, int64_t payload_bytes, const SentBytes& sent,
                            double busy_s) {
  const std::lock_guard lock(mutex_);
  for (LedgerEntry* entry : {&entries_[{group, op}], labelled_entry(group, op, label_)}) {
    if (entry == nullptr) continue;
    ++entry->calls;
    entry->payload_bytes += payload_bytes;
    entry->sent_bytes += static_cast<double>(sent.total());
    entry->counted.inside += sent.inside;
    entry->counted.across += sent.across;
    entry->busy_s += busy_s;
  }
}

void Ledger::record_seconds(const std::string& group, Operation op, const char* label, double busy_s,
                            double exposed_s) {
  const std::lock_guard lock(mutex_);
  for (LedgerEntry* entry : {&entries_[{group, op}], labelled_entry(group, op, label)}) {
    if (entry == nullptr) continue;
    entry->busy_s += busy_s;
    entry->exposed_s += exposed_s;
  }
}

void Ledger::record_waited(const std::string& group, Operation op, const char* label, double waited_s) {
  const std::lock_guard lock(mutex_);
  for (LedgerEntry* entry : {&entries_[{group, op}], labelled_entry(group, op, label)}) {
    if (entry == nullptr) continue;
    entry->waited_s += waited_s;
    ++entry->met_calls;
  }
}

void Ledger::record_exposed(const std::string& group, Operation op, double exposed_s) {
  const std::lock_guard lock(mutex_);
  entries_[{group, op}].exposed_s += exposed_s;
  if (LedgerEntry* entry = labelled_entry(group, op, label_)) entry->exposed_s += exposed_s;
}

std::map<Ledger::Key, LedgerEntry> Ledger::snapshot() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

double Ledger::total_sent_bytes() const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const auto& [key, entry] : entries_) sum += entry.sent_bytes;
  return sum;
}

SentBytes Ledger::total_counted() const {
  const std::lock_guard lock(mutex_);
  SentBytes sum;
  for (const auto& [key, entry] : entries_) {
    sum.inside += entry.counted.inside;
    sum.across += entry.counted.across;
  }
  return sum;
}

double Ledger::total_exposed_s(const std::string& group) const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const auto& [key, entry] : entries_) {
    if (key.first == group) sum += entry.exposed_s;
  }
  return sum;
}

void Ledger::reset() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  labelled_.clear();
}

}  // namespace triax::comm
