#include "train/run_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/version.h"
#include "io/options/validate.h"
#include "io/report/run_directory.h"
#include "model/counts.h"
#include "train/data_traffic.h"

namespace triax::train {

void say_header(const io::ParsedOptions& parsed, const Trainer& trainer, const comm::ProcessGrid& grid,
                const std::string& directory) {
  const io::RunOptions& o = parsed.options;
  const parallel::Program& program = trainer.program();
  spdlog::info("model {}: {} parameters; {} ranks, {}{}", o.model.name, model::parameter_count(o.model),
               grid.shape().world(), io::layout_name(o), o.parallel.sequence_parallel ? ", sequence parallel" : "");
  spdlog::info("program {:016x}: {}, {} micro-batches of {} sequences of {} tokens, global batch {}",
               parallel::hash_of(program), program.schedule, program.num_micro_batches, o.batch.micro_batch_size,
               o.model.seq_length, o.batch.global_batch_size);
  spdlog::info(
      "{} parameters, gradients and optimizer state in {}; gradients reduced {}, overlap {}; receives posted ahead {}",
      name_of(io::compute_dtype(o.control.precision)), name_of(io::state_dtype(o.control.precision)),
      o.parallel.zero_stage == 3 ? std::string("by unit")
                                 : fmt::format("in buckets of {} parameters", o.parallel.ddp_bucket_size),
      o.parallel.overlap_grad_reduce ? "on" : "off", o.parallel.overlap_p2p ? "on" : "off");
  const std::string traffic = describe_data_parallelism(trainer, o, grid.coord().pipeline);
  if (!traffic.empty()) spdlog::info("{}", traffic);
  for (const std::string& note : parsed.notes) spdlog::info("{}", note);
  if (!o.inert.empty()) spdlog::info("accepted, without effect: {}", fmt::join(o.inert, " "));
  spdlog::info("run directory {}", directory);
}

io::RunFacts run_facts(const Trainer& trainer) {
  const BuildInfo build = build_info();
  io::RunFacts facts;
  facts.version = build.version;
  facts.commit = build.commit;
  facts.compiler = build.compiler;
  for (const auto& [name, value] : build_info_rows()) facts.libraries[name] = value;
  if (const char* job = std::getenv("SLURM_JOB_ID"); job != nullptr) facts.slurm_job_id = job;
  facts.program_hash = fmt::format("{:016x}", parallel::hash_of(trainer.program()));
  return facts;
}

}  // namespace triax::train
