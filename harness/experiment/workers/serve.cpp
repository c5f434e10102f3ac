#include "harness/experiment/workers/serve.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/experiment/workers/crash_frames.h"
#include "harness/experiment/workers/message.h"
#include "harness/experiment/workers/wire.h"

namespace kvarena::experiment {
namespace {

using experiment::PlannedCell;
using experiment::SampleOutcome;
using nlohmann::json;

json evaluate(Bench& bench, const json& request) {
  const ReceivedTask task = read_task(request, *bench.config);
  std::vector<const PlannedCell*> cells;
  for (const PlannedCell& cell : task.cells) cells.push_back(&cell);
  const std::vector<SampleOutcome> outcomes = bench.evaluator->evaluate({.model = *task.model,
                                                                         .workload = *task.workload,
                                                                         .kind = task.kind,
                                                                         .sample_id = task.sample_id,
                                                                         .sample_index = task.sample_index,
                                                                         .cells = cells,
                                                                         .next = task.next});
  json list = json::array();
  for (const SampleOutcome& outcome : outcomes) list.push_back(outcome_json(outcome));
  return list;
}

}  // namespace

void serve(int channel, const std::function<Bench(const json& setup)>& open) {
  print_frames_of_crashes();
  FrameReader reader;
  Bench bench;
  while (const auto request = receive(channel, reader)) {
    json answer;
    const std::string failure = failure_of([&] {
      const std::string ask = request->at("ask");
      if (ask == "start") {
        bench = open(request->at("setup"));
      } else if (ask == "begin_model") {
        bench.evaluator->begin_model(model_labelled(request->at("model"), *bench.config), bench.config->engine);
      } else {
        answer = evaluate(bench, request->at("task"));
      }
    });
    if (!send(channel, failure.empty() ? json{{"ok", std::move(answer)}} : json{{"error", failure}})) return;
  }
}

}  // namespace kvarena::experiment
