// Published measurements from CSV files (--papers DIR), one function for each file's columns.
#pragma once

#include <vector>

#include "plan/papers/csv.h"
#include "plan/papers/paper_run.h"

namespace triax::plan {

void read_megatron21_table1(const CsvFile& file, std::vector<PaperRun>& runs);
void read_megatron21_table2(const CsvFile& file, std::vector<PaperRun>& runs);
void read_megatron21_figures(const CsvFile& file, std::vector<PaperRun>& runs);
void read_korthikanti22_table4(const CsvFile& file, std::vector<PaperRun>& runs);
void read_korthikanti22_table5(const CsvFile& file, std::vector<PaperRun>& runs);
void read_megatron20_readme(const CsvFile& file, std::vector<PaperRun>& runs);
void read_megatron_core24(const CsvFile& file, std::vector<PaperRun>& runs);
void read_mtnlg(const CsvFile& file, std::vector<PaperRun>& runs);
/// Of one node (preset vtrain-single) or many (vtrain-multi).
enum class VTrainNodes { One, Many };
void read_vtrain(const CsvFile& file, VTrainNodes nodes, std::vector<PaperRun>& runs);
/// All-reduce inside one server.
void read_nccl(const CsvFile& file, std::vector<PaperRun>& runs);
/// MPT under FSDP.
void read_llmfoundry(const CsvFile& file, std::vector<PaperRun>& runs);

}  // namespace triax::plan
