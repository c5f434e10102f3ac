#include "harness/experiment/workers/worker_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/core/error.h"
#include "harness/core/progress.h"
#include "harness/experiment/workers/wire.h"

namespace kvarena::experiment {
namespace {

using experiment::EvalTask;
using experiment::SampleOutcome;
using nlohmann::json;

constexpr int kAttempts = 3;  // at a sample whose worker others kill

/// Returns the worker's answer. Throws UserError with its message when that is an error.
json checked(json answer) {
  if (answer.contains("error")) throw UserError(answer["error"].get<std::string>());
  return std::move(answer.at("ok"));
}

/// "SnapKV on sample 7 of qasper (smollm2-135m, quality) has been running for 10 min 00 s; ...": perhaps it hangs.
std::string taking_long(const EvalTask& task, double seconds, const Limits& limits) {
  const size_t others = task.cells.size() - 1;
  const std::string limit = duration_text(limits.seconds);
  const std::string end = limits.seconds <= 0 ? "no time limit ends it"
                          : others > 0        ? fmt::format("after {} each is evaluated alone", limit)
                                              : fmt::format("it is ended after {}", limit);
  return fmt::format("{}{} on sample {} of {} ({}, {}) {} been running for {}; {}", task.cells.front()->record.method,
                     others > 0 ? fmt::format(" and {} others", others) : "", task.sample_id, task.workload.label,
                     task.model.label, results::name(task.kind), others > 0 ? "have" : "has", duration_text(seconds),
                     end);
}

}  // namespace

WorkerEvaluator::WorkerEvaluator(experiment::Evaluator& here, WorkerSettings settings)
    : here_(&here), settings_(std::move(settings)) {}

void WorkerEvaluator::begin_model(const experiment::ModelEntry& model, const experiment::EngineSettings& /*engine*/) {
  model_ = model.label;
  longest_sample_ = 0;
  for (int attempt = 1; worker_ == nullptr; ++attempt) {
    try {
      start();
    } catch (const WorkerDied& death) {
      if (!death.by_others() || attempt == kAttempts) throw;
      settings_.on_line(fmt::format("{}: {}; it is loaded again", model_, death.what()));
    }
  }
}

void WorkerEvaluator::end_model(const experiment::ModelEntry& model) {
  worker_.reset();
  model_.clear();
  here_->end_model(model);
}

void WorkerEvaluator::start() {
  auto worker = std::make_unique<WorkerProcess>(settings_.words, settings_.on_line);
  // Loading is no sample: it may take its time.
  const Limits limits{.seconds = 0, .memory_bytes = settings_.limits.memory_bytes};
  const Patience patience{
      .first = settings_.patience_s, .tell = [this](double seconds) {
        settings_.on_line(fmt::format("{} has been loading for {}", model_, duration_text(seconds)));
      }};
  checked(worker->ask({{"ask", "start"}, {"setup", settings_.setup}}, limits, patience));
  checked(worker->ask({{"ask", "begin_model"}, {"model", model_}}, limits, patience));
  worker_ = std::move(worker);
}

json WorkerEvaluator::ask(const EvalTask& task) {
  if (worker_ == nullptr) start();
  // A sample that takes as long as others did is no news.
  const Patience patience{.first = std::max(settings_.patience_s, 2 * longest_sample_), .tell = [&](double seconds) {
                            settings_.on_line(taking_long(task, seconds, settings_.limits));
                          }};
  const auto begin = std::chrono::steady_clock::now();
  try {
    json answer = worker_->ask({{"ask", "evaluate"}, {"task", task_json(task)}}, settings_.limits, patience);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    longest_sample_ = std::max(longest_sample_, took.count());
    return checked(std::move(answer));
  } catch (const WorkerDied&) {
    worker_.reset();
    throw;
  }
}

std::vector<SampleOutcome> WorkerEvaluator::evaluate(const EvalTask& task) {
  if (task.cells.size() > 1) return evaluate_together(task);
  return {evaluate_alone(task)};
}

std::vector<SampleOutcome> WorkerEvaluator::evaluate_together(const EvalTask& task) {
  try {
    const json answer = ask(task);
    std::vector<SampleOutcome> outcomes;
    for (const json& outcome : answer) outcomes.push_back(read_outcome(outcome));
    if (outcomes.size() == task.cells.size()) return outcomes;
  } catch (const json::exception&) {
    if (worker_ == nullptr) throw;
  }
  const auto mad = std::move(worker_);  // its state is unknown: it is not asked again
  mad->end("its worker sent what is no answer");
}

SampleOutcome WorkerEvaluator::evaluate_alone(const EvalTask& task) {
  for (int attempt = 1;; ++attempt) {
    try {
      return evaluate_together(task).front();
    } catch (const WorkerDied& death) {
      if (death.by_others() && attempt < kAttempts) continue;
      return {.failure = death.what(), .log = death.log()};
    }
  }
}

}  // namespace kvarena::experiment
