#pragma once
// Rows that a pass computed, downloaded to the host: entries for the host's cache, and what methods look at.

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/device/device_attention.h"
#include "kernels/cuda/device.h"

namespace kvarena::device {

/// Which rows come to the host behind a pass.
enum class Download : uint8_t {
  nothing,
  entries,     // keys and values
  everything,  // also queries, denominators, attention inputs and the residual stream
};

/// Rows of one layer and a pass, on the host; valid until the next pass.
struct LayerRows {
  QkvRows attention;                // without q unless everything was asked for
  const float* lse = nullptr;       // [rows, q_heads], natural logarithm of the softmax denominators
  const float* hidden = nullptr;    // [rows, hidden_size], the layer's attention input
  const float* residual = nullptr;  // [rows, hidden_size], behind the layer
};

/// Pinned memory for them. Recorded passes write to the same places again.
class DownloadedRows {
 public:
  struct Shape {
    int64_t first_layer = 0, layers = 0, rows = 0;
    int64_t q_heads = 0, hidden_size = 0;
    AttentionLayout attention;
  };
  /// Room for a pass of this shape; `moves` counts how often addresses have changed.
  void make_room(Download what, const Shape& shape, int64_t& moves);
  /// Queues the copies of one layer behind what `stream` was given; those that nobody asked for are none. What goes to
  /// attention, what it leaves, and what the layer leaves.
  void bring_inputs(int64_t layer, const QkvRows& from, const float* hidden, kernels::CudaStream stream);
  void bring_denominators(int64_t layer, const float* lse, kernels::CudaStream stream);
  void bring_residual(int64_t layer, const float* residual, kernels::CudaStream stream);
  /// All copies of a layer are queued: wait() waits for no more than these. Not in a recording.
  void queued(int64_t layer, kernels::CudaStream stream);
  /// All copies of the pass are queued.
  void queued(kernels::CudaStream stream);
  /// Waits until a layer's rows are there, while the layers behind it may still be computed.
  void wait(int64_t layer) const;

  [[nodiscard]] Download what() const { return what_; }
  /// From row `first` on, once the stream has come as far.
  [[nodiscard]] LayerRows layer(int64_t layer, int64_t first) const;

 private:
  /// Where the parts of a layer behind its queries begin, in floats.
  struct Places {
    int64_t entries, lse, hidden, residual, end;
  };
  [[nodiscard]] Places places() const;
  [[nodiscard]] float* memory(int64_t layer) const;

  Download what_ = Download::nothing;
  Shape shape_;
  PinnedWorkspace pinned_;
  std::vector<std::unique_ptr<kernels::CudaMark>> layers_queued_;  // [layers]
  kernels::CudaMark all_queued_;
  bool by_layer_ = false;  // of the pass under way
};

}  // namespace kvarena::device
