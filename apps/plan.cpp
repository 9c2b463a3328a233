// `triax plan`: which layout to run, and why.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/entry_makers.h"
#include "apps/plan_emit.h"
#include "apps/plan_request.h"
#include "apps/plan_text.h"
#include "apps/plan_try.h"
#include "apps/program_request.h"
#include "apps/verify_text.h"
#include "base/error.h"
#include "model/presets.h"
#include "plan/hardware_presets.h"

namespace triax::apps {
namespace {

std::string plan_help() {
  PlanRequest unused;
  return kPlanUsage + help_lines(plan_entries(unused));
}

enum class Reasons { Wanted, Unread };

/// `Unread`: the choice alone; what explains it would be priced and not printed.
PlanAnswer answer_of(const plan::PlanQuestion& question, Reasons reasons) {
  PlanAnswer answer;
  answer.question = question;
  answer.result = plan::search(question);
  if (answer.result.choices.empty()) {
    answer.infeasible = plan::infeasible_notes(question, answer.result);
    return answer;
  }
  if (reasons == Reasons::Unread) return answer;
  const plan::Choice& best = answer.result.choices.front();
  answer.ratios = plan::ratios_of(question, best.layout);
  answer.values = plan::value_notes(question, answer.result);
  answer.sensitivities = plan::sensitivities(question, answer.result);
  answer.advice = plan::advice(question, answer.result, answer.ratios);
  answer.assumed = plan::assumed_that_matter(best.options, question.hardware, 0.005);
  return answer;
}

int range_of(const PlanRequest& request) {
  const Reasons reasons = request.format == Format::Json ? Reasons::Wanted : Reasons::Unread;
  std::vector<PlanAnswer> answers;
  for (const int devices : request.devices) answers.push_back(answer_of(question_for(request, devices), reasons));
  std::string text;
  if (request.format == Format::Table) text = range_table(answers);
  if (request.format == Format::Csv) text = range_csv(answers);
  if (request.format == Format::Json) {
    text = "[\n";
    for (size_t i = 0; i < answers.size(); ++i) text += (i > 0 ? ",\n" : "") + plan_json(request, answers[i]);
    text += "]\n";
  }
  write_result(request.out, text);
  for (const PlanAnswer& answer : answers) {
    if (!answer.result.choices.empty()) return 0;
  }
  return static_cast<int>(ExitCode::Infeasible);
}

}  // namespace

int plan_command(const std::vector<std::string>& args) {
  PlanRequest request;
  read_plan_request(args, request);
  if (request.parsed.list_models) return fmt::print("{}", model::list_presets()), 0;
  if (request.parsed.help) return fmt::print("{}", plan_help()), 0;
  if (request.describe) return fmt::print("{}", kPlanDescription), 0;
  if (request.parsed.list_hardware) return fmt::print("{}", plan::list_hardware()), 0;
  if (!request.verify.empty()) {
    return print_verification(request.verify, request.question.hardware, request.format, request.out);
  }
  if (request.devices.size() > 1) return range_of(request);
  const PlanAnswer answer = answer_of(request.question, Reasons::Wanted);
  std::string text;
  if (request.format == Format::Table) text = plan_table(request, answer);
  if (request.format == Format::Json) text = plan_json(request, answer);
  if (request.format == Format::Csv) text = plan_csv(answer, request.shown);
  write_result(request.out, text);
  if (answer.result.choices.empty()) return static_cast<int>(ExitCode::Infeasible);
  if (!request.emit.empty()) emit_plan(request, answer);
  if (request.tried > 0) return try_plan(request, answer);
  return 0;
}

}  // namespace triax::apps
