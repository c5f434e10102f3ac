#pragma once
// Cells of a model behind an endpoint: several samples asked at a time, and one server after another where the run
// starts them.

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/evaluate/cell_procedures.h"
#include "harness/evaluate/served_load.h"
#include "harness/evaluate/served_quality.h"

namespace kvarena::evaluate {

/// Samples as servers are asked about them; alive as long as somebody waits for an answer.
struct AskedSamples {
  std::vector<datasets::Sample> samples;
  std::vector<Request> requests;
};

/// Keeps what was begun ahead of the runner's questions. Where a method's server is started by the run, one is up at a
/// time: the baseline's answers are kept, as the others are compared with them once its server is gone.
class ServedCells {
 public:
  /// The sample, or the point of a load, at a place of the task's workload.
  using Make = std::function<std::shared_ptr<const AskedSamples>(int64_t index)>;

  /// Begins as many samples as ModelEntry::concurrency says, and waits for the task's.
  [[nodiscard]] std::vector<experiment::SampleOutcome> quality(const OpenTask& open, const Make& make);
  /// Serves the task's point under each setting. `task` makes its description out of the point's requests.
  using MakeTask = std::function<ServingTask(const AskedSamples& point, int64_t index)>;
  [[nodiscard]] std::vector<experiment::SampleOutcome> serving(const OpenTask& open, const Make& make,
                                                               const MakeTask& task);

 private:
  using KnownReference = std::shared_ptr<const ServedReference>;
  /// The answers to one sample.
  struct Begun {
    std::shared_ptr<const AskedSamples> asked;
    KnownReference reference;
    std::vector<SettingAnswer> answers;
  };
  void bring_references(const OpenTask& open, const Make& make, const std::string& group);
  [[nodiscard]] std::future<Begun> begin(const OpenTask& open, const std::vector<ServedSetting>& settings,
                                         std::shared_ptr<const AskedSamples> asked, KnownReference reference);

  std::string cells_;  // that begun_ is about
  std::map<int64_t, std::future<Begun>> begun_;
  std::map<std::string, KnownReference> references_;  // by workload and place
  std::map<std::string, LoadReference> loads_;        // likewise, of points
};

}  // namespace kvarena::evaluate
