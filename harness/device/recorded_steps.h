#pragma once
// Steps that were recorded as graphs, by what they may be replayed for.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace kvarena::device {

class RecordedSteps {
 public:
  /// Queues the work on the scratch memory it is given; `recorded`: it will be replayed for others of its key.
  using Work = std::function<void(kernels::CudaScratch& scratch, bool recorded)>;

  /// Queues the work of a step of this key: recorded when a key comes for the second time running, replayed from then
  /// on; as it is, with `scratch`, where the key is empty.
  void run(const std::vector<int64_t>& key, kernels::CudaScratch& scratch, kernels::CudaStream stream,
           const Work& work);
  /// Steps that were replayed so far.
  [[nodiscard]] int64_t replayed() const { return replayed_; }

 private:
  static constexpr size_t kMost = 8;

  struct Step {
    std::vector<int64_t> key;
    kernels::CudaScratch scratch;  // holds what the graph reads
    std::unique_ptr<kernels::CudaGraph> graph;
  };
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<int64_t> last_key_;
  int64_t replayed_ = 0;
};

}  // namespace kvarena::device
