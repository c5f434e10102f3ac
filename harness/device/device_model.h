#pragma once
// The forward pass on a CUDA device: Transformer::forward over the device's kernels.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "harness/device/device_cache.h"
#include "harness/device/downloaded_rows.h"
#include "harness/device/host_attention.h"
#include "harness/device/host_selector.h"
#include "harness/model/row_stream.h"
#include "harness/model/transformer.h"

namespace kvarena::device {

/// One sequence's part of a pass.
struct DevicePass {
  std::span<const int32_t> tokens;  // at least one; the first has position cache->length()
  DeviceCache* cache = nullptr;     // receives the new entries; null where `host` attends
  LogitsRows logits = LogitsRows::last;
  /// Null: every entry is attended. Otherwise [kv_heads of the cache] ascending positions below cache->length(), the
  /// same in all layers but `whole` ones, to which the pass's own tokens are added: a choice that is known before the
  /// pass (SpeContext, arXiv:2512.00722). Of a cache in host placement only those come over the bus that the last such
  /// pass did not attend to, on a stream of their own, while the layer before computes.
  const std::vector<std::vector<int32_t>>* attended = nullptr;
  /// [layers] that attend to everything all the same; null: none. Only over caches on the device.
  const std::vector<bool>* whole = nullptr;
  /// Parents of a tree of tokens, as SequencePass has them: a row has the bits of a chain that holds its path alone.
  /// Only over full caches on the device, where nothing is chosen, and in models without sliding windows.
  std::span<const int32_t> parents = {};
  /// Called before a layer is computed, when those before it are under way; returns when the cache's entries of the
  /// layer are there. Empty: all are.
  std::function<void(int64_t layer)> arrive = {};
  /// Reads packed entries without the steps of their program: the upper of two planes.
  bool codes_alone = false;
  /// In place of the cache. Of such passes everything has to be brought to the host.
  HostAttention* host = nullptr;
  /// Chooses in each layer what is attended to in a cache on the device; entries of runs only where nothing is dropped.
  /// Everything has to be downloaded for it, too.
  HostSelector* choice = nullptr;
};

/// Logits on the device, sequences in the order given; valid until the next pass.
struct DeviceLogits {
  const float* data = nullptr;  // [rows, vocab_size]
  int64_t rows = 0;
};

/// Results do not depend on what else is in a pass, on how a prompt is cut into passes, on where a cache lies, on how
/// many devices share the layers, or on whether a step was recorded: each token's logits are the same bits. They agree
/// with the host's within rounding. One thread at a time. Errors of CUDA are std::runtime_error.
class DeviceModel {
 public:
  /// Uploads all weights, a block of rows at a time. `devices` [layers] has the number of each layer's device, those of
  /// one device one behind the other; empty: all are on device 0. Throws UserError as Transformer does.
  DeviceModel(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options,
              std::vector<int64_t> devices = {});
  /// Random weights of the config's shapes, for measuring.
  [[nodiscard]] static DeviceModel random(const ModelConfig& config, const TransformerOptions& options, uint64_t seed,
                                          std::vector<int64_t> devices = {});
  ~DeviceModel();
  DeviceModel(DeviceModel&&) noexcept;

  [[nodiscard]] const ModelConfig& config() const;
  /// [layers], how entries look in a cache, and where they are.
  [[nodiscard]] const std::vector<PlacedLayer>& shapes() const;
  /// An empty cache of this model's shape, with room for `entries` tokens from the start.
  [[nodiscard]] DeviceCache make_cache(Placement placement = Placement::device, int64_t entries = 0) const;
  /// A cache on the device of what the host's holds, full or as a method left or packed it, with room for `tokens`
  /// more. Throws UserError as DeviceCache does.
  [[nodiscard]] DeviceCache to_device(const KvCache& cache, int64_t tokens = 0) const;
  /// Bytes of all weights.
  [[nodiscard]] int64_t weight_bytes() const;

  /// Queues one pass; waits for nothing but the copy of an earlier pass's tokens, and in a layer with experts for the
  /// router. Where there are none, a step of single tokens over caches on the device is recorded, on each device for
  /// itself, when its shape comes for the second time and replayed as a graph from then on. Throws UserError when a
  /// token id is outside the vocabulary, a sequence would outgrow the model's window, or positions are chosen of a
  /// layer with a sliding window or of a cache that is not full; then no cache has changed. `bring`: what comes to the
  /// host behind it. `layers`: the pass leaves behind so many (0: all), straight to the final norm and the head; the
  /// tokens then have no entries in the layers behind, and have to be taken back before a pass visits those.
  DeviceLogits forward(std::span<const DevicePass> batch, Download bring = Download::nothing, int64_t layers = 0);
  /// The rows of a prompt of so many tokens, whose entries go to `cache`, which outlives them; no pass may run
  /// meanwhile. It is a full cache on the device or, where rows may leave between layers, has one layer on each device,
  /// which holds in turn those of the device and nothing of use behind them.
  [[nodiscard]] std::unique_ptr<RowStream> rows_of(DeviceCache& cache, int64_t tokens);
  /// Rows of a layer that the last pass downloaded, in the batch's order from `first` on. Waits for them, not for the
  /// layers behind: these are computed meanwhile, but where the step was recorded.
  [[nodiscard]] LayerRows brought(int64_t layer, int64_t first) const;
  /// The factor that makes a latent's downloaded queries the host's, where scores are scaled by its width; 1 for other
  /// attention.
  [[nodiscard]] float query_factor() const;
  /// [rows * vocab_size]; waits for the pass. Valid until the next call.
  [[nodiscard]] std::span<const float> download(const DeviceLogits& logits);
  /// The largest logit's token of each row, the first of equals; waits for the pass. Throws UserError where one is not
  /// a number.
  [[nodiscard]] std::vector<int32_t> largest(const DeviceLogits& logits);
  /// Waits for all that was queued.
  void synchronize() const;
  /// The stream on which passes end.
  [[nodiscard]] kernels::CudaStream stream() const;

  /// Recorded steps are on from the start.
  void record_steps(bool on);
  /// Passes that were replayed so far.
  [[nodiscard]] int64_t replayed() const;
  /// Bytes of entries that selections brought up from the host so far (ExtraRuns).
  [[nodiscard]] int64_t slot_bytes() const;

 private:
  struct Stage;
  struct Impl;
  explicit DeviceModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvarena::device
