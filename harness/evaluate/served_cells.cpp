#include "harness/evaluate/served_cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/failure.h"

namespace kvarena::evaluate {
namespace {

using experiment::ComponentEntry;
using experiment::SampleOutcome;

const ComponentEntry& baseline_of(const OpenTask& open) {
  return *std::ranges::find_if(open.config.methods, &ComponentEntry::baseline);
}

bool one_at_a_time(const OpenTask& open) {
  return std::ranges::any_of(open.config.methods, &ComponentEntry::starts_server);
}

bool asks_baseline_alone(const OpenTask& open) {
  return std::ranges::all_of(open.task.cells, [](const auto* cell) { return cell->method->baseline; });
}

std::vector<ServedSetting> settings_of(const OpenTask& open) {
  std::vector<ServedSetting> settings;
  for (const experiment::PlannedCell* cell : open.task.cells) {
    settings.push_back({.server = &open.model.server(*cell->method), .baseline = cell->method->baseline});
  }
  return settings;
}

/// The task's place and those that are asked about next.
std::vector<int64_t> places_of(const OpenTask& open) {
  std::vector<int64_t> places = {open.task.sample_index};
  places.insert(places.end(), open.task.next.begin(), open.task.next.end());
  return places;
}

std::string place_name(const OpenTask& open, int64_t index) {
  return fmt::format("{}\n{}", open.task.workload.label, index);
}

std::string names_of(const OpenTask& open) {
  std::string names;
  for (const experiment::PlannedCell* cell : open.task.cells) names += cell->record.cell_id + "\n";
  return names;
}

}  // namespace

std::future<ServedCells::Begun> ServedCells::begin(const OpenTask& open, const std::vector<ServedSetting>& settings,
                                                   std::shared_ptr<const AskedSamples> asked,
                                                   KnownReference reference) {
  const CompletionEndpoint* baseline = reference ? nullptr : &open.model.server(baseline_of(open));
  return std::async(std::launch::async, [=, prompts = open.task.model.prompts] {
    const Request& request = asked->requests.front();
    Begun begun{.asked = asked, .reference = reference, .answers = {}};
    if (!reference) {
      begun.reference = std::make_shared<const ServedReference>(ask_reference(*baseline, request, prompts));
    }
    for (const ServedSetting& setting : settings) {
      begun.answers.push_back(ask_setting(setting, request, prompts, *begun.reference));
    }
    return begun;
  });
}

/// Asks the baseline's server, before another takes its place, about all samples that are asked about next.
void ServedCells::bring_references(const OpenTask& open, const Make& make, const std::string& group) {
  std::vector<int64_t> missing = places_of(open);
  std::erase_if(missing, [&](int64_t index) { return references_.contains(place_name(open, index)); });
  if (missing.empty() || missing.front() != open.task.sample_index) return;
  for (const auto& [index, answers] : begun_) answers.wait();
  std::map<int64_t, std::future<Begun>> asked;
  const auto take = [&](int64_t index) {
    // One that fails is asked again when its turn comes, and fails that sample alone.
    const std::string failure =
        failure_of([&] { references_[place_name(open, index)] = asked.at(index).get().reference; });
    asked.erase(index);
    if (index == open.task.sample_index && !failure.empty()) {
      throw UserError(fmt::format("the baseline, {}: {}", group, failure));
    }
  };
  for (const int64_t index : missing) {
    asked.emplace(index, begin(open, {}, make(index), nullptr));
    if (std::ssize(asked) >= open.task.model.concurrency) take(asked.begin()->first);
  }
  while (!asked.empty()) take(asked.begin()->first);
}

std::vector<SampleOutcome> ServedCells::quality(const OpenTask& open, const Make& make) {
  if (const std::string cells = names_of(open); cells != cells_) {
    begun_.clear();
    cells_ = cells;
  }
  const bool keeps = one_at_a_time(open);
  if (keeps && !asks_baseline_alone(open)) bring_references(open, make, open.task.workload.label);
  const std::vector<ServedSetting> settings = settings_of(open);
  for (const int64_t index : places_of(open)) {
    const bool wanted = index == open.task.sample_index || std::ssize(begun_) < open.task.model.concurrency;
    if (!wanted) break;
    if (begun_.contains(index)) continue;
    const auto known = references_.find(place_name(open, index));
    const bool there = known != references_.end();
    if (keeps && !there && !asks_baseline_alone(open)) break;  // its turn brings the reference
    begun_.emplace(index, begin(open, settings, make(index), there ? known->second : nullptr));
  }
  const Begun begun = begun_.extract(open.task.sample_index).mapped().get();
  if (keeps) references_[place_name(open, open.task.sample_index)] = begun.reference;
  std::vector<SampleOutcome> outcomes;
  for (const SettingAnswer& answer : begun.answers) {
    outcomes.push_back(outcome_of(answer, begun.asked->requests.front(), *begun.reference));
  }
  return outcomes;
}

std::vector<SampleOutcome> ServedCells::serving(const OpenTask& open, const Make& make, const MakeTask& task) {
  const std::string& prompts = open.task.model.prompts;
  const bool keeps = one_at_a_time(open);
  for (const int64_t index : places_of(open)) {
    const std::string place = place_name(open, index);
    if (loads_.contains(place)) continue;
    const auto point = make(index);
    loads_[place] = measure_load(open.model.server(baseline_of(open)), task(*point, index), prompts);
    if (!keeps) break;
  }
  const auto point = make(open.task.sample_index);
  const LoadReference& reference = loads_.at(place_name(open, open.task.sample_index));
  std::vector<SampleOutcome> outcomes;
  for (const experiment::PlannedCell* cell : open.task.cells) {
    SampleOutcome& outcome = outcomes.emplace_back();
    const std::string failure = failure_of([&] {
      outcome =
          evaluate_load(open.model.server(*cell->method), task(*point, open.task.sample_index), reference, prompts);
    });
    if (!failure.empty()) outcome = {.failure = failure};
  }
  return outcomes;
}

}  // namespace kvarena::evaluate
