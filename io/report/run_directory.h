// The directory of one run: chosen so that no other run's is overwritten; run.json and resolved.cfg before step 1.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/options/options.h"
#include "io/report/records.h"

namespace triax::io {

/// What run.json records besides the options. Strings are empty when unknown.
struct RunFacts {
  std::string version, commit, compiler;
  std::vector<std::string> command_line;
  std::string slurm_job_id;  ///< SLURM_JOB_ID, empty outside Slurm
  int world_size = 1;
  std::vector<std::string> hosts;  ///< host of each rank
  std::string device = "cpu";
  std::string program_hash;  ///< 16 hex digits
  std::string data_hash, tokenizer_hash;
  std::map<std::string, std::string> libraries;  ///< name -> version
  int64_t parameters = 0;
  double peak_tflops = 0;
};

struct RunDirectory {
  std::string path;
  bool continued = false;  ///< a restart of the same Slurm job goes on in its directory
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Called by one rank. Default name runs/<model>-<layout>-<date>, or -<SLURM_JOB_ID> under Slurm. A directory that
/// holds a run goes on only with a restart of it: same Slurm job (outside Slurm: --load equal to --save), same command
/// line but for when it stops, evaluates, saves and speaks, not finished (or finished, and killed before its marker).
/// Another run's is refused (ConfigError,
/// --run-dir) or avoided by a suffix -2, -3 (default name).
RunDirectory open_run_directory(const RunOptions& options, const RunFacts& facts);
/// "tp2-pp2-dp2", with "-v2" for two model chunks per rank.
std::string layout_name(const RunOptions& options);
/// Writes run.json (a restart keeps the earlier one as run-1.json, run-2.json, ...) and resolved.cfg. Throws
/// RunTimeError.
void write_run_files(const RunDirectory& directory, const ParsedOptions& parsed, const RunFacts& facts);
std::string run_json(const ParsedOptions& parsed, const RunFacts& facts);
/// The file by which a job script knows that a run has come to its end: the launcher's exit code can be 0 without it.
inline constexpr const char* kCompletionMarker = "completed";
/// The file of a run that --exit-interval has ended before its last iteration, with exit code 0: it is not complete,
/// and the same command, or the next job of a chain, goes on with it.
inline constexpr const char* kPauseMarker = "paused";
/// Writes the one or the other: "iteration N". By one rank, after all ranks have written what they have to.
void mark_ended(const RunDirectory& directory, EndReason reason, int64_t iteration);
/// Before a run starts in `directory`: removes earlier markers and moves the flight recorder's files of
/// an earlier attempt from flight/ to flight-1/, flight-2/, ...
void set_records_aside(const RunDirectory& directory);
/// Writes summary.json at the end of a run of `steps` iterations. A start that found nothing left to do keeps that of
/// the one which finished the run.
void write_summary(const RunDirectory& directory, const std::string& json, int64_t steps);
/// What a file of a run holds; null where there is none, discarded where it is no JSON (a run may have been killed).
nlohmann::ordered_json read_json(const std::string& path);
/// A file whole or not at all. Throws RunTimeError.
void write_text_file(const std::string& path, const std::string& text);
/// Environment variables that shape a run (OMP_*, UCX_*, some of SLURM_*, ...), never one whose name tells of a secret.
std::map<std::string, std::string> allowed_environment();

}  // namespace triax::io
