#pragma once
// A Transformer's passes on a device: caches and methods stay on the host, what they leave is attended to there.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "harness/device/device_keys.h"
#include "harness/device/device_mirrors.h"
#include "harness/device/device_model.h"
#include "harness/device/host_sequence.h"
#include "harness/model/offload.h"

namespace kvarena::device {

/// The device attends where nobody chooses what is attended to: prompts that methods observe, decoding behind methods
/// that drop entries of the prompt or pack them, drafts of the first layers, verification. Where methods choose among
/// entries it asks them in each layer. RemoteRows (views that it does not know, codecs that do not say how entries are
/// put together) it computes everything but attention, which is the host's, layer by layer.
///
/// The host's cache gets every entry that the device computes. Hooks are shown a layer while the device computes the
/// layers behind it, unless the step was recorded. Sums over a prompt's attention are the device's; readers who want
/// something else of it are shown the host's, computed again from the device's queries.
class DeviceOffload final : public Offload {
 public:
  /// Caches may take `cache_bytes` on each device; 0: most of what is free once the weights are there.
  explicit DeviceOffload(DeviceModel model, int64_t cache_bytes = 0);

  std::span<const float> forward(std::span<const SequencePass> batch) override;
  [[nodiscard]] std::unique_ptr<RowStream> rows_of(KvCache& cache, int64_t tokens, bool by_layer) override;
  void upload(KvCache& cache, int64_t tokens) override;
  [[nodiscard]] std::unique_ptr<SearchedKeys> searched_keys(int64_t kv_heads, int64_t head_dim,
                                                            const LedgerPtr& ledger) override;
  /// Its caches have room for 32k tokens, or for its window where that is shorter.
  [[nodiscard]] std::unique_ptr<Offload> beside(const ModelConfig& config, const Checkpoint& checkpoint,
                                                const TransformerOptions& options) override;

  [[nodiscard]] const DeviceModel& model() const { return model_; }
  [[nodiscard]] const DeviceMirrors& mirrors() const { return *mirrors_; }
  /// Tokens that went through the device.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  /// Tokens of these whose attention was the host's.
  [[nodiscard]] int64_t tokens_attended_on_host() const { return tokens_attended_on_host_; }
  /// Tokens, over layers, whose attention the host computed again for readers.
  [[nodiscard]] int64_t tokens_read_on_host() const { return tokens_read_on_host_; }

 private:
  /// A sequence of the pass under way.
  struct Sequence {
    const SequencePass* pass = nullptr;
    HookAccess reach = HookAccess::nothing;  // of its hooks
    int64_t first_row = 0;
    DeviceCache* cache = nullptr;            // where the device attends
    std::unique_ptr<ChosenSequence> choice;  // there, where hooks choose
    std::optional<SharedChoice> shared;      // where that is known for all layers at once
    ArrivingCache* arriving = nullptr;       // where layers are still on their way to it
    std::unique_ptr<HostSequence> host;      // where it does not
  };

  /// The hooks of a pass that begins with what has come of its cache; null where all of it has to be there.
  [[nodiscard]] ArrivingCache* arriving(const SequencePass& pass) const;
  /// Whether the device attends, too, to a cache that is there.
  [[nodiscard]] bool attends(const SequencePass& pass) const;
  [[nodiscard]] DeviceLogits start(std::span<const SequencePass> batch, std::optional<HeldCopies>& held);
  void sort(std::span<const SequencePass> batch);
  void show();
  void finish();
  void take(int64_t layer, const Sequence& sequence);
  void show(int64_t layer, const Sequence& sequence, const LayerRows& rows);
  void read(kernels::AttentionReader& reader, const LayerCache& cache, const LayerQueries& queries);

  DeviceModel model_;
  std::vector<PlacedLayer> shapes_;  // [layers]
  std::shared_ptr<DeviceMirrors> mirrors_;
  std::shared_ptr<KeySearcher> searcher_;
  int64_t layers_ = 0;  // that the pass under way visits
  std::vector<Sequence> sequences_;
  // Memory for what is shown: queries as the host has them, and attention that is computed again for readers.
  std::vector<float> queries_, attended_, running_;
  int64_t tokens_ = 0, tokens_attended_on_host_ = 0, tokens_read_on_host_ = 0;
};

}  // namespace kvarena::device
