#pragma once
// The shared backend: a decoder-only transformer, dense or sparse, with ordinary or latent attention, over the
// project's kernels. One pass takes a ragged batch: prefill chunks, single decode tokens and verification runs of
// different sequences together.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/cache/searched_keys.h"
#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "harness/model/rope_frequencies.h"
#include "kernels/common/arithmetic.h"
#include "kernels/common/dtype.h"

namespace kvarena {

struct TransformerOptions {
  /// Stored form of matrices; empty: each as its checkpoint stores it.
  std::optional<kernels::DType> weights = kernels::DType::bf16;
  kernels::DType cache = kernels::DType::bf16;  // stored form of cache entries
  /// How products with matrices and with cache entries in bf16 round activations, queries and probabilities; bf16 needs
  /// weights in bf16. All else is float32.
  kernels::Arithmetic arithmetic = kernels::Arithmetic::exact;
};

/// Options by the names that configs and commands give: "f32", "f16" and "bf16", of weights also "as stored". Without a
/// name of their own entries have that of the weights, or "f32" beside weights as stored, whose results are f32's.
/// Arithmetic is "exact" or "bf16".
[[nodiscard]] TransformerOptions options_named(const std::string& weights, const std::string& cache,
                                               const std::string& arithmetic = "exact");

enum class LogitsRows { none, last, all };

/// One sequence's part of a pass.
struct SequencePass {
  std::span<const int32_t> tokens;  // at least one; the first has position cache->length, unless `positions` says
  KvCache* cache = nullptr;         // receives the new entries; length grows by tokens.size()
  AttentionHooks* hooks = nullptr;  // may be null
  LogitsRows logits = LogitsRows::last;
  /// Leave after so many layers: their residual goes straight to the final norm and the head, and later layers' caches
  /// stay as they are. 0 = all layers.
  int64_t exit_after = 0;
  /// Parents of a tree of tokens: the index in this pass of the token before each on its path, a lower one, or -1 for
  /// the end of the cache. Empty: each token follows the one before it. A token's logits have the bits of a chain that
  /// holds its path alone. Entries lie in the order of the pass: those of rejected branches have to be removed
  /// afterwards. Only for caches of one dense segment a layer, and models without sliding windows or recurrent layers.
  std::span<const int32_t> parents = {};
  /// Positions of the tokens, ascending, in a prompt of which others have entries: each token attends to the entries up
  /// to its own position, and its entry replaces the cache's or, without a gap, stands behind them. length grows to the
  /// last one's. Empty: tokens follow the cache. Only for caches of one dense segment a layer, all layers, models
  /// without recurrent layers, and without hooks; at most the last row's logits. A device computes such a sequence by
  /// itself.
  std::span<const int32_t> positions = {};
};

/// Decides, while a prompt is recomputed, which rows go on to the next layer.
class RowFilter {
 public:
  virtual ~RowFilter() = default;
  /// Whether rows are filtered at this layer.
  [[nodiscard]] virtual bool judges(int64_t layer) const = 0;
  /// Observes fresh entries of some of the rows, ascending positions, before they replace those of the cache. keys and
  /// values [positions.size(), kv_heads, head_dim] with `stride` floats between rows. Called until all rows were seen.
  virtual void see(int64_t layer, std::span<const int32_t> positions, const float* keys, const float* values,
                   int64_t stride, const LayerCache& cache) = 0;
  /// The positions of `positions` that go on, ascending, the last one among them. Fresh entries of the others stay in
  /// this layer's cache.
  [[nodiscard]] virtual std::vector<int32_t> keep(int64_t layer, std::span<const int32_t> positions) = 0;
};

/// Decides, while a prompt is computed from nothing, which rows deeper layers never see.
class RowPruner {
 public:
  virtual ~RowPruner() = default;
  /// Observes the attention of some of the layer's rows, ascending; their entries are the newest of `cache`. lse
  /// [positions.size(), q_heads]. Called until all rows were seen.
  virtual void attended(int64_t layer, std::span<const int32_t> positions, const LayerCache& cache,
                        const LayerQueries& queries, const float* lse) = 0;
  /// The positions that the next layer computes, among `positions`, which this layer computed: ascending, the last one
  /// among them.
  [[nodiscard]] virtual std::vector<int32_t> keep(int64_t layer, std::span<const int32_t> positions) = 0;
};

/// A prompt of which only some tokens are computed, all at once or some at a time.
struct Recomputation {
  std::span<const int32_t> tokens;     // the whole prompt
  std::span<const int32_t> positions;  // of the tokens to compute, ascending; from cache->length on without a gap
  KvCache* cache = nullptr;            // dense, an entry at each position before its length; grows to the last token's
  RowFilter* filter = nullptr;         // may be null
  RowPruner* pruner = nullptr;  // may be null; of an empty cache: layers then hold the entries that they computed
};

struct Recomputed {
  std::span<const float> logits;   // [vocab_size], after the last position; valid until the next pass
  std::vector<int64_t> rows;       // [layers], tokens that a layer computed
  std::vector<int32_t> positions;  // positions that all layers computed
};

class Offload;
struct SharedModel;

/// Results do not depend on what else is in a pass, on how a prompt is cut into passes, or on the number of threads:
/// each token's logits are the same bits alone, in a batch, or inside a verification run.
/// One thread at a time may call forward(); kernels use OpenMP threads inside.
class Transformer {
 public:
  /// Reads and packs all weights, one tensor at a time. Throws UserError naming the tensor whose shape disagrees with
  /// the config, or which is missing or not finite.
  Transformer(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options);
  ~Transformer();
  Transformer(Transformer&&) noexcept;

  /// Has `device` compute all passes from now on.
  void offload_to(std::unique_ptr<Offload> device);
  /// Another checkpoint that helps this model (a drafter, a speculative model), by what find_model() takes, an adapter
  /// over `base` where that is not empty: in the same stored forms, on the same device. Opened when it is first asked
  /// for and held as long as this model. Throws UserError when it is absent or does not fit; opening it meets no pass
  /// of this model. Thread-safe once it is open: requests take turns with its passes (SharedModel::turn).
  [[nodiscard]] std::shared_ptr<SharedModel> helper(const std::string& name, const std::string& base = {});

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] const TransformerOptions& options() const;
  /// Shape of a layer's entries in a cache. Here and below layers are those that hold entries
  /// (ModelConfig::cached_layers()).
  [[nodiscard]] const LayerShape& layer_shape(int64_t layer) const;
  /// Shapes of the states that the other layers hold.
  [[nodiscard]] std::span<const RecurrentShape> state_shapes() const;
  /// An empty cache of this model's shape.
  [[nodiscard]] KvCache make_cache() const;
  /// Frequencies of the rotation of a layer's queries and cached keys, [head_dim of the cache / 2]: channels c and c +
  /// head_dim / 2 are rotated together, by 0 where a latent is not rotated. Under scaling by length, those of
  /// the original window.
  [[nodiscard]] const RopeFrequencies& rope(int64_t layer) const;
  /// fingerprint_of() the checkpoint.
  [[nodiscard]] const std::string& fingerprint() const;
  /// Bytes of packed weights.
  [[nodiscard]] int64_t weight_bytes() const;
  /// Numbers of all matrices.
  [[nodiscard]] int64_t weight_numbers() const;

  /// The linear map from a layer's attended values to its output, [hidden_size, q_heads * head_dim of its cache]: the
  /// output projection as stored, before a norm of that output; for latent attention its product with the matrices from
  /// latent to values.
  [[nodiscard]] std::vector<float> output_projection(int64_t layer) const;

  /// Embeddings of tokens as the first layer gets them, rows [tokens, hidden_size]. Throws UserError when an id is
  /// outside the vocabulary.
  void embed(std::span<const int32_t> tokens, float* rows) const;

  /// Logits [count, vocab_size] of rows [count, hidden_size] of the residual stream behind the last layer: the same
  /// bits as forward() makes of them.
  void predict(const float* rows, int64_t count, float* logits) const;

  /// Runs one pass. The result holds the logits asked for, [rows, vocab_size], sequences in the order given; it is
  /// valid until the next call. Throws UserError when a token id is outside the vocabulary or a sequence would outgrow
  /// the model's window; then no cache has changed.
  std::span<const float> forward(std::span<const SequencePass> batch);

  /// Computes the listed tokens as one ragged batch, layer by layer: each attends to all entries up to its own
  /// position, fresh ones where they were computed and the cache's elsewhere, and its entry replaces the cache's.
  /// Listing every token gives the bits of forward(), and so does a list that is cut into several calls. Not for models
  /// with recurrent layers. Throws as forward() does.
  [[nodiscard]] Recomputed recompute(const Recomputation& what);

  /// Has a device copy the cache ahead of a pass over `tokens` more, on any thread, beside passes over others, unless
  /// it lacks room beside those; nothing on the host. Returns when it is there. Throws UserError when the device
  /// refuses.
  void upload(KvCache& cache, int64_t tokens);

  /// Keys that are searched on the device before its passes, none yet; null where there is no device. They throw
  /// UserError when it refuses.
  [[nodiscard]] std::unique_ptr<SearchedKeys> searched_keys(int64_t kv_heads, int64_t head_dim,
                                                            const LedgerPtr& ledger) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvarena
