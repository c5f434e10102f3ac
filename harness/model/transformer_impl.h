#pragma once
// Members of a Transformer: weights, and the memory of a pass under way. transformer.cpp runs passes that append to
// caches, recompute.cpp those that replace entries, with rows that host_rows.cpp takes through the layers.

#include "harness/model/activations.h"
#include "harness/model/attention_projections.h"
#include "harness/model/offload.h"
#include "harness/model/row_stream.h"
#include "harness/model/step_threads.h"
#include "harness/model/transformer.h"
#include "harness/model/weights.h"

namespace kvarena {

struct Transformer::Impl {
  ModelConfig config;
  TransformerOptions options;
  ModelWeights weights;
  std::unique_ptr<Offload> device;  // null: the host computes everything
  RopeFrequencies rope;             // frequencies of the rotated channels
  RopeFrequencies rotation;         // frequencies of a whole head in the cache
  std::string fingerprint;
  std::vector<LayerShape> shapes;  // [layers]

  StepThreads threads;  // threads of forward()
  Activations a;
  Workspace attended;              // [R, q_heads * head_dim of the cache]
  Workspace running;               // [R, q_heads] maxima, then [R, q_heads] sums
  Workspace lse;                   // [R, q_heads]
  Workspace logits;                // [wanted rows, vocab_size]
  Workspace left;                  // [R, hidden_size], residuals of sequences that left early
  Workspace together;              // [wanted rows, vocab_size], of passes that leave behind different layers
  std::vector<int32_t> positions;  // [R]
  std::vector<int64_t> lengths;    // [R], of the prompts that rows belong to, as far as known (dynamic scaling)

  void check(std::span<const SequencePass> batch) const;
  /// Runs one pass on the host.
  std::span<const float> run(std::span<const SequencePass> batch);
  /// Runs one pass, parts of it on the device (offload.cpp).
  std::span<const float> forward(std::span<const SequencePass> batch);
  void embed(std::span<const SequencePass> batch);
  void make_rotations(std::span<const SequencePass> batch);
  void attention_block(int64_t layer, std::span<const SequencePass> batch);
  void mlp_block(const LayerWeights& layer);
  /// Number of a sequence's rows whose logits are wanted.
  [[nodiscard]] static int64_t wanted_rows(const SequencePass& pass) {
    const auto count = static_cast<int64_t>(pass.tokens.size());
    return pass.logits == LogitsRows::all ? count : pass.logits == LogitsRows::last ? 1 : 0;
  }
  int64_t collect_wanted(std::span<const SequencePass> batch);
  /// The layer after which a sequence leaves.
  [[nodiscard]] int64_t last_layer(const SequencePass& pass) const {
    return (pass.exit_after == 0 ? config.layers : pass.exit_after) - 1;
  }
  void run_layer(int64_t layer, std::span<const SequencePass> batch);
  void run_layers_with_exits(std::span<const SequencePass> batch);
  /// Applies final norm and head to the stream's first `rows` rows.
  std::span<const float> head(int64_t rows);

  class Rows;  // host_rows.cpp
  /// Rows of a prompt whose entries `cache` takes; no other pass may run meanwhile.
  [[nodiscard]] std::unique_ptr<RowStream> rows_of(const KvCache& cache);
};

}  // namespace kvarena
