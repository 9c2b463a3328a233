// Runs of the published experiments by preset: configurations from the papers and their scripts, with the published
// figures that are at hand as single numbers. CSV files of --papers DIR add rows and larger tables.
#pragma once

#include <string>
#include <vector>

#include "plan/papers/paper_run.h"

namespace triax::plan {

struct RunPreset {
  std::string name;
  std::string title;  ///< what, and the citation
  std::string file;   ///< CSV of --papers DIR; empty: none
  bool needs_file = false;
};
/// In the order of --paper all.
const std::vector<RunPreset>& run_presets();

/// The compiled-in runs of all presets, with `fitted` set on the rows that constants were fitted on.
std::vector<PaperRun> compiled_runs();
/// With the rows of the CSV files in `directory`: a row of an equal id or an equal configuration replaces the compiled
/// one. Appends "FILE: absent" for each file that is not there. Empty directory: compiled_runs() and every file absent.
std::vector<PaperRun> paper_runs(const std::string& directory, std::vector<std::string>& absent);

}  // namespace triax::plan
