#pragma once
// Members of a Transformer: weights, and the memory of a pass under way. transformer.cpp runs passes that append to
// caches, recompute.cpp those that replace entries, with rows that host_rows.cpp takes through the layers.

#include <algorithm>
#include <map>
#include <mutex>

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
  /// By name and base; guarded by helping.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<SharedModel>> helpers;
  std::mutex helping;
  RopeFrequencies ropes[2];   // frequencies of the rotated channels, in the order of Activations::turns
  RopeFrequencies rotation;   // frequencies of a whole head in the cache, where ropes[0] rotates
  float embedding_scale = 1;  // factor on embeddings
  std::string fingerprint;
  std::vector<int64_t> holders;        // [cached layers], their numbers in the model
  std::vector<int64_t> numbers;        // [layers], of each among those that hold entries, or among those with states
  std::vector<LayerShape> shapes;      // [cached layers]
  std::vector<RecurrentShape> states;  // of the other layers

  StepThreads threads;  // threads of forward()
  Activations a;
  Workspace attended;            // [R, q_heads * head_dim of the cache]
  Workspace running;             // [R, q_heads] maxima, then [R, q_heads] sums
  Workspace lse;                 // [R, q_heads]
  Workspace logits;              // [wanted rows, vocab_size]
  Workspace left;                // [R, hidden_size], residuals of sequences that left early
  Workspace together;            // [wanted rows, vocab_size], of passes that leave behind different layers
  std::vector<int64_t> lengths;  // [R], of the prompts that rows belong to, as far as known (dynamic scaling)

  void check(std::span<const SequencePass> batch) const;
  /// Runs one pass on the host.
  std::span<const float> run(std::span<const SequencePass> batch);
  [[nodiscard]] std::vector<std::vector<size_t>> together_on_device(std::span<const SequencePass> batch) const;
  /// Runs one pass, on the device in as many parts as it takes (offload.cpp).
  std::span<const float> forward(std::span<const SequencePass> batch);
  /// The first layer's input for some tokens, rows [tokens, hidden_size].
  void embed_rows(std::span<const int32_t> tokens, float* rows) const;
  void embed(std::span<const SequencePass> batch);
  [[nodiscard]] int64_t rotation_of(int64_t layer) const { return config.has_own_rotation(layer) ? 1 : 0; }
  /// Rows of Activations::turns[rotation] at `places`; `prompts` as in rotation_rows().
  void tabulate(int64_t rotation, std::span<const int32_t> places, std::span<const int64_t> prompts, float* cos,
                float* sin) const;
  void make_rotations(std::span<const SequencePass> batch);
  /// Numbers the layers and takes down their shapes.
  void note_layers();
  void attention_block(int64_t layer, std::span<const SequencePass> batch);
  /// Takes the rows through the states of a layer that has them in place of attention.
  void recurrent_block(int64_t layer, std::span<const SequencePass> batch);
  /// Projects what the layer attended to and adds it to the stream.
  void add_attended(const LayerWeights& layer, const float* seen);
  /// Adds what a block gives to the stream, by way of its norm where it has one.
  void add_to_stream(float* out, const std::vector<float>& norm);
  void mlp_block(const LayerWeights& layer);
  /// Number of a sequence's rows whose logits are wanted.
  [[nodiscard]] static int64_t wanted_rows(const SequencePass& pass) {
    const auto count = static_cast<int64_t>(pass.tokens.size());
    return pass.logits == LogitsRows::all ? count : pass.logits == LogitsRows::last ? 1 : 0;
  }
  /// Tokens that a sequence's cache holds after the pass.
  [[nodiscard]] static int64_t length_after(const SequencePass& pass) {
    if (pass.positions.empty()) return pass.cache->length + std::ssize(pass.tokens);
    return std::max<int64_t>(pass.cache->length, pass.positions.back() + 1);
  }
  int64_t collect_wanted(std::span<const SequencePass> batch);
  /// The layer after which a sequence leaves.
  [[nodiscard]] int64_t last_layer(const SequencePass& pass) const {
    return (pass.exit_after == 0 ? config.layers : pass.exit_after) - 1;
  }
  void run_layer(int64_t layer, std::span<const SequencePass> batch);
  void run_layers_with_exits(std::span<const SequencePass> batch);
  /// Logits [count, vocab_size] of normalised rows.
  void predict(const float* normed, int64_t count, float* to) const;
  /// Applies final norm and head to the stream's first `rows` rows.
  std::span<const float> head(int64_t rows);

  class Rows;  // host_rows.cpp
  /// Rows of a prompt whose entries `cache` takes; no other pass may run meanwhile.
  [[nodiscard]] std::unique_ptr<RowStream> rows_of(const KvCache& cache);
  /// Computes on the device a sequence that has positions; the last row's logits, valid until the next pass.
  std::span<const float> rows_on_device(const SequencePass& pass);
};

}  // namespace kvarena
