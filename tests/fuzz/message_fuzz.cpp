#include <nlohmann/json.hpp>

#include "harness/experiment/workers/message.h"
#include "harness/experiment/workers/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using nlohmann::json;
using namespace kvarena::experiment;

const ExperimentConfig& config() {
  static const ExperimentConfig kConfig = [] {
    ExperimentConfig config;
    config.models = {{.name = "m", .label = "m"}};
    config.workloads = {{.name = "w", .label = "w"}};
    config.methods = {{.name = "full", .label = "full", .baseline = true}, {.name = "h2o", .label = "h2o"}};
    return config;
  }();
  return kConfig;
}

template <class Read>
void try_to_read(Read read) {
  try {
    kvarena::fuzz::try_to(read);
  } catch (const json::exception&) {  // as wire.h says
  }
}

/// A runner reads an answer: an outcome that it understands is sent on as it came.
void read_answer(const json& outcomes) {
  for (const json& value : outcomes) {
    try_to_read([&] {
      const std::string sent = frame(outcome_json(read_outcome(value)));
      FrameReader reader;
      reader.append(sent);
      if (frame(outcome_json(read_outcome(*reader.next()))) != sent) __builtin_trap();
    });
  }
}

/// A worker reads a request.
void read_request(const json& task) {
  try_to_read([&] {
    const ReceivedTask received = read_task(task, config());
    std::vector<const PlannedCell*> cells;
    for (const PlannedCell& cell : received.cells) cells.push_back(&cell);
    const json sent = task_json({.model = *received.model,
                                 .workload = *received.workload,
                                 .kind = received.kind,
                                 .sample_id = received.sample_id,
                                 .sample_index = received.sample_index,
                                 .cells = cells});
    const ReceivedTask again = read_task(sent, config());
    if (again.sample_index != received.sample_index || again.cells.size() != received.cells.size()) __builtin_trap();
  });
}

}  // namespace

/// Arbitrary bytes between runner and worker, read by each as messages of the other.
KVARENA_FUZZ(message, data) {
  FrameReader reader;
  reader.append(kvarena::fuzz::text_of(data.first(data.size() / 2)));
  reader.append(kvarena::fuzz::text_of(data.subspan(data.size() / 2)));
  while (const auto message = reader.next()) {
    if (!message->is_object()) continue;
    if (message->contains("ok")) read_answer(message->at("ok"));
    if (message->contains("task")) read_request(message->at("task"));
  }
}
