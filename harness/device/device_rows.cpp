// A prompt's rows, between the layers of a DeviceModel, on the device of the layer that comes next.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "harness/core/error.h"
#include "harness/device/device_model_impl.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {

using kernels::CellKind;

class DeviceModel::Impl::Rows final : public RowStream {
 public:
  Rows(Impl& model, DeviceCache& cache, int64_t tokens)
      : model_(model), m_(model.stages.front().get()), cache_(cache), tokens_(tokens) {
    KVARENA_ASSERT(cache.full() && cache.placement() == Placement::device && cache.length() <= tokens,
                   "a prompt over what is not all there");
    model.synchronize();
    cache.reserve(tokens);
    cache.prompt_length = tokens;
    for (const auto& stage : model.stages) stage->sequences.clear();
    const kernels::CudaDeviceScope here(m_->device);
    at_ = std::make_unique<Place>();
  }

  void load(std::span<const int32_t> tokens, std::span<const int32_t> positions) override {
    const kernels::CudaDeviceScope here(m_->device);
    rows_ = std::ssize(positions);
    end_ = std::max<int64_t>(cache_.length(), positions.back() + 1);
    const auto* index = static_cast<const int32_t*>(at_->lists.upload(tokens.data(), rows_ * 4, stream()));
    m_->weights.embedding.gather_rows(index, rows_, at_->residuals.room(rows_ * hidden()), hidden(), stream());

    std::vector<float> cos(static_cast<size_t>(rows_ * half())), sin(cos.size());
    const std::vector<int64_t> lengths(positions.size(), tokens_);
    rotation_rows(m_->config, m_->rope, positions, lengths, cos.data(), sin.data());
    kernels::cuda_upload(at_->cos.room(rows_ * half()), cos.data(), rows_ * half() * 4, stream());
    kernels::cuda_upload(at_->sin.room(rows_ * half()), sin.data(), rows_ * half() * 4, stream());
    kernels::cuda_synchronize(stream());
  }

  QkvRows entries(const RowBlock& block) override {
    const kernels::CudaDeviceScope here(go_to(block.layer));
    (void)fresh(block, Download::entries);
    kernels::cuda_synchronize(stream());
    return m_->brought.layer(block.layer, 0).attention;
  }

  /// The host stores a block's entries while the device computes what follows.
  void pass(const RowBlock& block, const Store& store, const Watch& watch) override {
    const kernels::CudaDeviceScope here(go_to(block.layer));
    const QkvRows from = fresh(block, watch ? Download::everything : Download::entries);
    attend(block, from);
    m_->brought.bring_denominators(block.layer, m_->lse.data(), stream());
    if (watch) at_->brought.record(stream());
    std::visit([&](const auto& kind) { m_->attention.output(kind, m_->seen.data(), m_->x.data(), turned(block)); },
               m_->weights.layers[block.layer].attention);
    m_->mlp_block(block.layer);
    kernels::cuda_copy(at_->residuals.data() + block.first * hidden(), m_->x.data(), m_->rows * hidden() * 4, stream());
    at_->brought.wait();
    const LayerRows rows = m_->brought.layer(block.layer, 0);
    store(rows.attention);
    if (watch) watch(rows.attention, rows.lse);
  }

  void keep(std::span<const int32_t> rows) override {
    const kernels::CudaDeviceScope here(m_->device);
    rows_ = std::ssize(rows);
    std::vector<kernels::WeightedRow> list;
    for (const int32_t row : rows) list.push_back({.row = row});
    const auto* from = static_cast<const kernels::WeightedRow*>(
        at_->lists.upload(list.data(), static_cast<int64_t>(list.size() * sizeof(list[0])), stream()));
    for (const auto& [table, width] : at_->tables(hidden(), half())) {
      table->keep(from, rows_, width, stream());
    }
  }

  std::span<const float> finish() override {
    const kernels::CudaDeviceScope here(go_to(m_->config.layers - 1));
    m_->normalise(at_->residuals.data() + (rows_ - 1) * hidden(), m_->weights.final_norm, m_->normed.data(), 1);
    m_->logits.at_least(m_->config.vocab_size, m_->moves);
    m_->predict(1);
    cache_.advance(end_ - cache_.length());
    return m_->download({.data = m_->logits.data(), .rows = 1});
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
    /// Takes over another's numbers, perhaps of another device, which are no more changed.
    void take(const Table& from, int64_t floats, kernels::CudaStream stream) {
      kernels::cuda_copy(room(floats), from.data(), floats * 4, stream);
    }

   private:
    Workspace now_, spare_;
    int64_t moves_ = 0;
  };

  /// Memory on the rows' device.
  struct Place {
    Table residuals;             // [rows, hidden_size]
    Table cos, sin;              // [rows, half]
    kernels::CudaScratch lists;  // of places, of what rows see
    kernels::CudaMark brought;   // behind what the host gets of a block

    /// Each table with the width of its rows.
    [[nodiscard]] std::array<std::pair<Table*, int64_t>, 3> tables(int64_t hidden, int64_t half) {
      return {{{&residuals, hidden}, {&cos, half}, {&sin, half}}};
    }
  };

  /// Brings the rows to where the layer is; returns that device.
  int64_t go_to(int64_t layer) {
    Stage& next = model_.stage_of(layer);
    if (&next == m_) return m_->device;
    kernels::cuda_synchronize(stream());
    const kernels::CudaDeviceScope there(next.device);
    auto place = std::make_unique<Place>();
    const auto from = at_->tables(hidden(), half()), to = place->tables(hidden(), half());
    for (size_t i = 0; i < to.size(); ++i)
      to[i].first->take(*from[i].first, rows_ * to[i].second, next.compute.stream());
    kernels::cuda_synchronize(next.compute.stream());
    at_ = std::move(place);
    m_ = &next;
    return next.device;
  }

  /// Entries of a layer where the rows are.
  [[nodiscard]] kernels::Cells cells(int64_t layer, int64_t head, CellKind kind) const {
    if (std::ssize(cache_.layers_) == m_->config.layers) return cache_.cells(layer, head, kind);
    const auto device = std::ranges::find(cache_.layers_, m_->device, &PlacedLayer::device);
    return cache_.cells(device - cache_.layers_.begin(), head, kind);
  }
  [[nodiscard]] kernels::CudaStream stream() const { return m_->compute.stream(); }
  [[nodiscard]] int64_t hidden() const { return m_->config.hidden_size; }
  [[nodiscard]] int64_t half() const { return m_->config.rotary_dim() / 2; }
  [[nodiscard]] PassRows turned(const RowBlock& block) const {
    return {.rows = m_->rows,
            .cos = at_->cos.data() + block.first * half(),
            .sin = at_->sin.data() + block.first * half(),
            .stream = stream()};
  }

  /// Computes a block's queries and entries, stores the entries, and sends both on their way to the host.
  QkvRows fresh(const RowBlock& block, Download bring) {
    m_->rows = std::ssize(block.places);
    m_->make_room(bring, block.layer, 1);
    kernels::cuda_copy(m_->x.data(), at_->residuals.data() + block.first * hidden(), m_->rows * hidden() * 4, stream());
    const DeviceLayerWeights& w = m_->weights.layers[block.layer];
    m_->normalise(m_->x.data(), w.attention_norm, m_->normed.data(), m_->rows);
    const QkvRows from = std::visit(
        [&](const auto& kind) { return m_->attention.input(kind, m_->normed.data(), turned(block)); }, w.attention);
    const auto* places =
        static_cast<const int32_t*>(at_->lists.upload(block.places.data(), block.places.size_bytes(), stream()));
    std::vector<kernels::RowStore> stores;
    for (int64_t h = 0; h < m_->shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const float* rows = kind == CellKind::keys ? from.keys : from.values;
        stores.push_back({.to = cells(block.layer, h, kind),
                          .count = m_->rows,
                          .rows = rows + h * m_->shape().head_dim,
                          .row_stride = from.kv_stride,
                          .places = places});
      }
    }
    kernels::store_rows_cuda(stores, m_->scratch, stream());
    m_->brought.bring_inputs(block.layer, from, m_->normed.data(), stream());
    at_->brought.record(stream());
    return from;
  }

  void attend(const RowBlock& block, const QkvRows& from) {
    const int64_t q_heads = m_->config.q_heads, head_dim = m_->shape().head_dim;
    const kernels::AttentionState all{
        .out = m_->seen.data(), .max = m_->running.data(), .sum = m_->running.data() + m_->rows * q_heads};
    std::vector<int32_t> seen;
    for (const int32_t place : block.places) seen.push_back(place + 1);
    std::vector<kernels::HeadRun> runs;
    for (int64_t h = 0; h < m_->shape().kv_heads; ++h) {
      runs.push_back({.keys = cells(block.layer, h, CellKind::keys).data,
                      .values = cells(block.layer, h, CellKind::values).data,
                      .entries = seen.back()});
    }
    kernels::AttendProblem problem = m_->problem_of(0, m_->rows, from, all);
    problem.runs = runs.data();
    problem.seen = static_cast<const int32_t*>(at_->lists.upload(seen.data(), m_->rows * 4, stream()));
    problem.window = m_->shapes[block.layer].window;
    kernels::init_attention_cuda(all, m_->rows, q_heads, head_dim, stream());
    kernels::attend_cuda(m_->attend_args({&problem, 1}), m_->scratch, stream());
    float* const denominators = m_->brought.what() == Download::everything ? m_->lse.data() : nullptr;
    kernels::finish_attention_cuda(all, m_->rows, q_heads, head_dim, denominators, stream());
  }

  Impl& model_;
  Stage* m_;  // where the rows are
  std::unique_ptr<Place> at_;
  DeviceCache& cache_;
  int64_t tokens_;    // of the prompt
  int64_t rows_ = 0;  // in the stream
  int64_t end_ = 0;   // of the cache once they have passed
};

std::unique_ptr<RowStream> DeviceModel::rows_of(DeviceCache& cache, int64_t tokens) {
  return std::make_unique<Impl::Rows>(*impl_, cache, tokens);
}

}  // namespace kvarena::device
