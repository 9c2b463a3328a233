#include "plan/sweep/runner.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "base/version.h"
#include "io/report/run_directory.h"
#include "plan/sweep/environment.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;

/// An advisory lock that ends with the process that holds it.
class PointLock {
 public:
  explicit PointLock(const std::string& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw RunTimeError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
    held_ = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  }
  PointLock(const PointLock&) = delete;
  PointLock& operator=(const PointLock&) = delete;
  PointLock(PointLock&&) = delete;
  PointLock& operator=(PointLock&&) = delete;
  ~PointLock() {
    if (held_) ::unlink(path_.c_str());
    ::close(descriptor_);
  }
  bool held() const { return held_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  bool held_ = false;
};

void move_aside(const std::string& directory, const char* why) {
  int number = 1;
  while (fs::exists(fmt::format("{}.{}-{}", directory, why, number))) ++number;
  fs::rename(directory, fmt::format("{}.{}-{}", directory, why, number));
}

PointRecord new_record(const Point& point) {
  PointRecord record;
  const BuildInfo build = build_info();
  record.settings = point.request.settings;
  record.repeat = point.request.repeat;
  record.mode = name_of(point.request.mode);
  record.ranks = point.ranks;
  record.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  record.host = host_facts().name;
  record.version = build.version;
  record.commit = build.commit;
  return record;
}

/// The run itself may have ended well although nobody wrote it down: a marker is a run's last act.
bool finished_alone(const std::string& directory) {
  return fs::exists(directory + "/" + io::kCompletionMarker) || fs::exists(directory + "/" + io::kPauseMarker);
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options), points_(options.directory + "/points") {
    std::error_code error;
    fs::create_directories(points_, error);
    if (error)
      throw ConfigError(fmt::format("--out {}: cannot be made ({}); name a directory that can be", options.directory,
                                    error.message()));
  }

  /// The record of a point, run now where it has to be; sets `ran`.
  PointRecord take(const Point& point, bool& ran) {
    const std::string directory = points_ + "/" + point.name;
    if (const auto kept = kept_record(directory)) return *kept;
    PointRecord record = new_record(point);
    if (options_.run == RunPoints::None) return record;
    const PointLock lock(directory + ".lock");
    if (!lock.held()) {
      record.reason = "another process is running it";
      return record;
    }
    if (const auto kept = kept_record(directory)) return *kept;  // the holder before us wrote it
    const bool failed_before = read_record(directory).has_value();
    if (!failed_before && finished_alone(directory) && read_metrics(directory, point.request.mode, record.metrics)) {
      record.state = PointState::Done;
      write_record(directory, record);
      return record;
    }
    if (fs::exists(directory)) move_aside(directory, failed_before ? "failed" : "interrupted");
    ran = true;
    run(point, directory, record);
    return record;
  }

  bool interrupted() const { return interrupted_; }

 private:
  std::optional<PointRecord> kept_record(const std::string& directory) const {
    auto record = read_record(directory);
    if (!record) return std::nullopt;
    const bool again = options_.run == RunPoints::Missing && options_.retry == Retry::Failed;
    if (record->state != PointState::Done && again) return std::nullopt;
    return record;
  }

  void run(const Point& point, const std::string& directory, PointRecord& record) {
    fs::create_directories(directory);
    if (!point.refusal.empty()) {
      record.state = PointState::Refused;
      record.reason = point.refusal;
      write_record(directory, record);
      return;
    }
    ProcessRequest request;
    request.command = command_of(point, options_.launcher, options_.triax, directory);
    request.stdout_path = directory + "/stdout.txt";
    request.stderr_path = directory + "/stderr.txt";
    request.timeout_s = options_.point_timeout_s;
    record.command = request.command;
    const ProcessResult result = run_process(request);
    if (result.interrupted) {
      interrupted_ = true;
      return;
    }
    judge(result, request.stderr_path, record);
    if (record.state == PointState::Done && !read_metrics(directory, point.request.mode, record.metrics)) {
      record.state = PointState::Failed;
      record.reason = "ended with exit code 0 but without results (summary.json)";
    }
    if (record.state == PointState::Infeasible && read_metrics(directory, point.request.mode, record.metrics) &&
        record.metrics.contains("memory_limit_bytes")) {
      record.reason =
          fmt::format("the fullest stage needs {:.1f} GiB of {:.1f}", record.metrics["peak_memory_bytes"] / kGiB,
                      record.metrics["memory_limit_bytes"] / kGiB);
    }
    write_record(directory, record);
  }

  const RunnerOptions& options_;
  std::string points_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

namespace {

/// The points of one call, taken in order by one or several threads. Each thread waits for the process that it started,
/// which gets SIGTERM when its thread ends (process.h).
class ProcessPool {
 public:
  ProcessPool(const std::vector<Point>& points, const RunnerOptions& options, const PointObserver& observer)
      : points_(points), observer_(observer), runner_(options) {
    result_.records.resize(points.size());
  }

  SweepRun run(int jobs) {
    std::vector<std::thread> others;
    for (int job = 1; job < jobs; ++job) others.emplace_back([this] { work(); });
    work();
    for (std::thread& other : others) other.join();
    if (fault_) std::rethrow_exception(fault_);
    result_.interrupted = result_.interrupted || runner_.interrupted();
    return std::move(result_);
  }

 private:
  void work() {
    for (size_t i = next_++; i < points_.size(); i = next_++) {
      try {
        take(i);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!fault_) fault_ = std::current_exception();
      }
    }
  }

  bool stops(size_t i) {
    const std::lock_guard lock(mutex_);
    const bool stop = runner_.interrupted() || StopSignals::received() != 0;
    if (!stop && !fault_) return false;
    result_.records[i] = new_record(points_[i]);
    result_.interrupted = result_.interrupted || stop;
    return true;
  }

  void take(size_t i) {
    if (stops(i)) return;
    bool ran = false;
    PointRecord record = runner_.take(points_[i], ran);
    const std::lock_guard lock(mutex_);
    result_.records[i] = std::move(record);
    // A point that a stop cut off has no end to tell of.
    if (!ran || (runner_.interrupted() && result_.records[i].state == PointState::Missing)) return;
    ++result_.started;
    if (observer_) observer_(i, points_[i], result_.records[i]);
  }

  const std::vector<Point>& points_;
  const PointObserver& observer_;
  Runner runner_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;  // of all below
  SweepRun result_;
  std::exception_ptr fault_;
};

}  // namespace

SweepRun run_points(const std::vector<Point>& points, const RunnerOptions& options, const PointObserver& observer) {
  const StopSignals signals;
  return ProcessPool(points, options, observer).run(options.jobs);
}

}  // namespace triax::plan
