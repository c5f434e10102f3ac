// A prompt's rows on the device, between the layers of a DeviceModel.
#include <utility>

#include "harness/core/error.h"
#include "harness/device/device_model_impl.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {

using kernels::CellKind;

class DeviceModel::Impl::Rows final : public RowStream {
 public:
  Rows(Impl& model, DeviceCache& cache, int64_t tokens) : m_(model), cache_(cache), tokens_(tokens) {
    KVARENA_ASSERT(cache.full() && cache.placement() == Placement::device && cache.length() <= tokens,
                   "a prompt over what is not all there");
    cache.reserve(tokens, stream());
    cache.prompt_length = tokens;
    m_.sequences.clear();
    if (m_.ranks != nullptr) m_.ranks->begin({}, /*may_be_given_up=*/true);
  }

  void load(std::span<const int32_t> prompt, std::span<const int32_t> positions) override {
    rows_ = std::ssize(positions);
    std::vector<int32_t> tokens;
    for (const int32_t position : positions) tokens.push_back(prompt[static_cast<size_t>(position)]);
    const auto* index = static_cast<const int32_t*>(lists_.upload(tokens.data(), rows_ * 4, stream()));
    m_.weights.embedding.gather_rows(index, rows_, residuals_.room(rows_ * hidden()), hidden(), stream());

    std::vector<float> cos(static_cast<size_t>(rows_ * half())), sin(cos.size());
    const std::vector<int64_t> lengths(positions.size(), tokens_);
    rotation_rows(m_.config, m_.rope, positions, lengths, cos.data(), sin.data());
    kernels::cuda_upload(cos_.room(rows_ * half()), cos.data(), rows_ * half() * 4, stream());
    kernels::cuda_upload(sin_.room(rows_ * half()), sin.data(), rows_ * half() * 4, stream());
    m_.synchronize();
  }

  QkvRows entries(const RowBlock& block) override {
    (void)fresh(block, Download::entries);
    m_.synchronize();
    return m_.brought.layer(0, 0).attention;
  }

  /// The host stores a block's entries while the device computes what follows.
  void pass(const RowBlock& block, const Store& store, const Watch& watch) override {
    const QkvRows from = fresh(block, watch ? Download::everything : Download::entries);
    attend(block, from);
    m_.brought.bring_denominators(0, m_.lse.data(), stream());
    if (watch) brought_.record(stream());
    std::visit([&](const auto& kind) { m_.attention.output(kind, m_.seen.data(), m_.x.data(), turned(block)); },
               m_.weights.layers[block.layer].attention);
    m_.mlp_block(block.layer);
    kernels::cuda_copy(residuals_.data() + block.first * hidden(), m_.x.data(), m_.rows * hidden() * 4, stream());
    brought_.wait();
    const LayerRows rows = m_.brought.layer(0, 0);
    store(rows.attention);
    if (watch) watch(rows.attention, rows.lse);
  }

  void keep(std::span<const int32_t> rows) override {
    rows_ = std::ssize(rows);
    std::vector<kernels::WeightedRow> list;
    for (const int32_t row : rows) list.push_back({.row = row});
    const auto* from = static_cast<const kernels::WeightedRow*>(
        lists_.upload(list.data(), static_cast<int64_t>(list.size() * sizeof(list[0])), stream()));
    for (const auto& [table, width] : {std::pair{&residuals_, hidden()}, {&cos_, half()}, {&sin_, half()}}) {
      table->keep(from, rows_, width, stream());
    }
  }

  std::span<const float> finish() override {
    m_.normalise(residuals_.data() + (rows_ - 1) * hidden(), m_.weights.final_norm, m_.normed.data(), 1);
    m_.logits.at_least(m_.config.vocab_size, m_.moves);
    m_.predict(1);
    cache_.advance(tokens_ - cache_.length());
    return m_.download({.data = m_.logits.data(), .rows = 1});
  }

 private:
  /// Numbers of each row, and room for those that stay when others leave.
  class Table {
   public:
    float* room(int64_t floats) { return now_.at_least(floats, moves_); }
    [[nodiscard]] float* data() const { return now_.data(); }
    void keep(const kernels::WeightedRow* rows, int64_t count, int64_t width, kernels::CudaStream stream) {
      kernels::gather_rows_cuda(data(), width, rows, count, width, spare_.at_least(count * width, moves_), stream);
      std::swap(now_, spare_);
    }

   private:
    Workspace now_, spare_;
    int64_t moves_ = 0;
  };

  [[nodiscard]] kernels::CudaStream stream() const { return m_.compute.stream(); }
  [[nodiscard]] int64_t hidden() const { return m_.config.hidden_size; }
  [[nodiscard]] int64_t half() const { return m_.config.rotary_dim() / 2; }
  [[nodiscard]] PassRows turned(const RowBlock& block) const {
    return {.rows = m_.rows,
            .cos = cos_.data() + block.first * half(),
            .sin = sin_.data() + block.first * half(),
            .stream = stream()};
  }

  /// Computes a block's queries and entries, stores the entries, and sends both on their way to the host.
  QkvRows fresh(const RowBlock& block, Download bring) {
    m_.rows = std::ssize(block.places);
    m_.depth = 1;
    m_.make_room(bring);
    kernels::cuda_copy(m_.x.data(), residuals_.data() + block.first * hidden(), m_.rows * hidden() * 4, stream());
    const DeviceLayerWeights& w = m_.weights.layers[block.layer];
    m_.normalise(m_.x.data(), w.attention_norm, m_.normed.data(), m_.rows);
    const QkvRows from = std::visit(
        [&](const auto& kind) { return m_.attention.input(kind, m_.normed.data(), turned(block)); }, w.attention);
    const auto* places =
        static_cast<const int32_t*>(lists_.upload(block.places.data(), block.places.size_bytes(), stream()));
    std::vector<kernels::RowStore> stores;
    for (int64_t h = 0; h < m_.shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const float* rows = kind == CellKind::keys ? from.keys : from.values;
        stores.push_back({.to = cache_.cells(block.layer, h, kind),
                          .count = m_.rows,
                          .rows = rows + h * m_.shape().head_dim,
                          .row_stride = from.kv_stride,
                          .places = places});
      }
    }
    kernels::store_rows_cuda(stores, m_.scratch, stream());
    m_.brought.bring_inputs(0, from, m_.normed.data(), stream());
    brought_.record(stream());
    return from;
  }

  void attend(const RowBlock& block, const QkvRows& from) {
    const int64_t q_heads = m_.config.q_heads, head_dim = m_.shape().head_dim;
    const kernels::AttentionState all{
        .out = m_.seen.data(), .max = m_.running.data(), .sum = m_.running.data() + m_.rows * q_heads};
    std::vector<int32_t> seen;
    for (const int32_t place : block.places) seen.push_back(place + 1);
    std::vector<kernels::HeadRun> runs;
    for (int64_t h = 0; h < m_.shape().kv_heads; ++h) {
      runs.push_back({.keys = cache_.cells(block.layer, h, CellKind::keys).data,
                      .values = cache_.cells(block.layer, h, CellKind::values).data,
                      .entries = seen.back()});
    }
    kernels::AttendProblem problem = m_.problem_of(0, m_.rows, from, all);
    problem.runs = runs.data();
    problem.seen = static_cast<const int32_t*>(lists_.upload(seen.data(), m_.rows * 4, stream()));
    problem.window = m_.shapes[block.layer].window;
    kernels::init_attention_cuda(all, m_.rows, q_heads, head_dim, stream());
    kernels::attend_cuda(m_.attend_args({&problem, 1}), m_.scratch, stream());
    float* const denominators = m_.brought.what() == Download::everything ? m_.lse.data() : nullptr;
    kernels::finish_attention_cuda(all, m_.rows, q_heads, head_dim, denominators, stream());
  }

  Impl& m_;
  DeviceCache& cache_;
  int64_t tokens_;              // of the prompt
  int64_t rows_ = 0;            // in the stream
  Table residuals_;             // [rows, hidden_size]
  Table cos_, sin_;             // [rows, half]
  kernels::CudaScratch lists_;  // of places, of what rows see
  kernels::CudaMark brought_;   // behind what the host gets of a block
};

std::unique_ptr<RowStream> DeviceModel::rows_of(DeviceCache& cache, int64_t tokens) {
  return std::make_unique<Impl::Rows>(*impl_, cache, tokens);
}

}  // namespace kvarena::device
