// A prompt's rows on the processor, between the layers of a Transformer.

#include <algorithm>
#include <memory>

#include "harness/model/attend_sequence.h"
#include "harness/model/products.h"
#include "harness/model/row_stream.h"
#include "harness/model/transformer_impl.h"
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

  void load(std::span<const int32_t> tokens, std::span<const int32_t> positions) override {
    rows_ = std::ssize(positions);
    positions_.assign(positions.begin(), positions.end());
    model_.embed_rows(tokens, stream_.at_least(rows_ * hidden_));
    const std::vector<int64_t> lengths(positions.size(), cache_.prompt_length);
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
  /// Attends into `attended`, with the logarithm of denominators in `lse`.
  void attend(const RowBlock& block, const QkvRows& rows) {
    const LayerShape& shape = model_.shapes[block.layer];
    const int64_t states = std::ssize(block.places) * shape.q_heads;
    attend_at(cache_.layers[block.layer].tail(), block.places, rows,
              {.attended = model_.attended.at_least(states * shape.head_dim),
               .running = model_.running.at_least(2 * states),
               .lse = model_.lse.at_least(states)});
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
