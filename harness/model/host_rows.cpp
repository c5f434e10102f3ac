// A prompt's rows on the processor, between the layers of a Transformer.

#include <algorithm>
#include <memory>

#include "harness/model/products.h"
#include "harness/model/row_stream.h"
#include "harness/model/transformer_impl.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena {

class Transformer::Impl::Rows final : public RowStream {
 public:
  Rows(Impl& model, const KvCache& cache)
      : model_(model),
        cache_(cache),
        hidden_(model.a.hidden),
        half_(model.config.turned_dim() / 2),
        rotations_(model.config.two_rotations() ? 2 : 1) {}

  void load(std::span<const int32_t> prompt, std::span<const int32_t> positions) override {
    rows_ = std::ssize(positions);
    positions_.assign(positions.begin(), positions.end());
    std::vector<int32_t> tokens;
    for (const int32_t position : positions) tokens.push_back(prompt[static_cast<size_t>(position)]);
    model_.embed_rows(tokens, stream_.at_least(rows_ * hidden_));
    const std::vector<int64_t> lengths(positions.size(), std::ssize(prompt));
    for (int64_t rotation = 0; rotation < rotations_; ++rotation) {
      model_.tabulate(rotation, positions, lengths, cos_[rotation].at_least(rows_ * half_),
                      sin_[rotation].at_least(rows_ * half_));
    }
  }

  QkvRows entries(const RowBlock& block) override {
    Activations& a = model_.a;
    a.rows = std::ssize(block.places);
    std::copy_n(stream_.at_least(0) + block.first * hidden_, a.rows * hidden_, a.x.at_least(a.rows * hidden_));
    a.positions.assign(positions_.begin() + block.first, positions_.begin() + block.first + a.rows);
    a.rotation = model_.rotation_of(block.layer);
    float* turn = a.turns[a.rotation].at_least(2 * a.rows * half_);
    std::copy_n(cos_[a.rotation].at_least(0) + block.first * half_, a.rows * half_, turn);
    std::copy_n(sin_[a.rotation].at_least(0) + block.first * half_, a.rows * half_, turn + a.rows * half_);
    const LayerWeights& w = model_.weights.layers[block.layer];
    const float* in = a.normalise_stream(w.attention_norm, a.rows);
    return std::visit([&](const auto& kind) { return attention_input(kind, model_.config, in, a); }, w.attention);
  }

  void pass(const RowBlock& block, const Store& store, const Watch& watch) override {
    const QkvRows rows = entries(block);
    store(rows);
    attend(block, rows);
    if (watch) watch(rows, model_.lse.at_least(0));
    const LayerWeights& layer = model_.weights.layers[block.layer];
    model_.add_attended(layer, model_.attended.at_least(0));
    model_.mlp_block(layer);
    std::copy_n(model_.a.x.at_least(0), std::ssize(block.places) * hidden_,
                stream_.at_least(0) + block.first * hidden_);
  }

  void keep(std::span<const int32_t> rows) override {
    rows_ = std::ssize(rows);
    const auto close_up = [&](Workspace& memory, int64_t width) {
      float* to = memory.at_least(0);
      const float* from = to;
      for (const int32_t row : rows) {
        if (from + row * width != to) std::copy_n(from + row * width, width, to);
        to += width;
      }
    };
    for (size_t i = 0; i < rows.size(); ++i) positions_[i] = positions_[static_cast<size_t>(rows[i])];
    close_up(stream_, hidden_);
    for (int64_t rotation = 0; rotation < rotations_; ++rotation) {
      close_up(cos_[rotation], half_);
      close_up(sin_[rotation], half_);
    }
  }

  std::span<const float> finish() override {
    model_.a.rows = 1;
    std::copy_n(stream_.at_least(0) + (rows_ - 1) * hidden_, hidden_, model_.a.x.at_least(hidden_));
    return model_.head(1);
  }

 private:
  /// Attends each row to the entries up to its own, into `attended`, and the logarithm of its denominators into `lse`.
  void attend(const RowBlock& block, const QkvRows& rows) {
    const LayerShape& shape = model_.shapes[block.layer];
    const EntrySegment& held = cache_.layers[block.layer].tail();
    const int64_t q_len = std::ssize(block.places), states = q_len * shape.q_heads;
    std::vector<int32_t> seen;
    for (const int32_t place : block.places) seen.push_back(place + 1);
    std::vector<kernels::HeadRun> runs;
    for (int64_t head = 0; head < shape.kv_heads; ++head) runs.push_back(held.run(head));
    const kernels::AttentionState state{.out = model_.attended.at_least(states * shape.head_dim),
                                        .max = model_.running.at_least(2 * states),
                                        .sum = model_.running.at_least(2 * states) + states};
    kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim, shape.sinks);
    const kernels::AttendProblem problem{.q = rows.q,
                                         .q_len = q_len,
                                         .q_token_stride = rows.q_stride,
                                         .q_head_stride = shape.head_dim,
                                         .runs = runs.data(),
                                         .dtype = shape.dtype,
                                         .seen = seen.data(),
                                         .window = shape.window,
                                         .chunked = shape.chunked,
                                         .state = state};
    kernels::attend({.problems = {&problem, 1},
                     .q_heads = shape.q_heads,
                     .kv_heads = shape.kv_heads,
                     .head_dim = shape.head_dim,
                     .scale = attention_scale(shape)});
    kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, model_.lse.at_least(states));
  }

  Impl& model_;
  const KvCache& cache_;
  int64_t hidden_, half_, rotations_;
  int64_t rows_ = 0;
  std::vector<int32_t> positions_;  // [rows]
  Workspace stream_;                // [rows, hidden_size]
  Workspace cos_[2], sin_[2];       // [rows, half], in the order of Activations::turns
};

std::unique_ptr<RowStream> Transformer::Impl::rows_of(const KvCache& cache) {
  return std::make_unique<Rows>(*this, cache);
}

}  // namespace kvarena
