#include "harness/device/offloaded_rows.h"

#include <algorithm>

#include "harness/device/device_errors.h"
#include "harness/device/host_sequence.h"

namespace kvarena::device {
namespace {

/// Runs `work`; spoiled state is forgotten when the rows are.
template <typename Work>
auto guarded(const Work& work) {
  return on_device(work, [] {});
}

}  // namespace

OffloadedRows::OffloadedRows(DeviceModel& model, DeviceMirrors& mirrors, KvCache& host, int64_t tokens, bool by_layer,
                             int64_t& computed)
    : model_(&model), host_(&host), by_layer_(by_layer), computed_(&computed), held_(guarded([&] {
        if (by_layer) return mirrors.of_layers(host, tokens);
        const GrowingCache grown[] = {{.host = &host, .tokens = tokens - host.length}};
        return mirrors.of(grown, model.config().layers);
      })) {
  rows_ = on_device([&] { return model.rows_of(*held_.front(), tokens); }, [&] { host.mirror.reset(); });
}

OffloadedRows::~OffloadedRows() {
  if (!alike_) host_->mirror.reset();
}

void OffloadedRows::load(std::span<const int32_t> tokens, std::span<const int32_t> positions) {
  guarded([&] { rows_->load(tokens, positions); });
  *computed_ += std::ssize(positions);
}

QkvRows OffloadedRows::entries(const RowBlock& block) {
  return guarded([&] { return rows_->entries(block); });
}

void OffloadedRows::pass(const RowBlock& block, const Store& store, const Watch& watch) {
  Watch scaled;
  if (watch) {
    scaled = [&](QkvRows rows, const float* lse) {
      rows.q = host_queries(*model_, rows, std::ssize(block.places), queries_);
      watch(rows, lse);
    };
  }
  const Store once = [&](const QkvRows& rows) {
    const LayerCache& layer = host_->layers[block.layer];
    const auto fresh = std::ranges::lower_bound(block.places, layer.tail().entries(0));
    DeviceMirrors::appending(*host_, (block.places.end() - fresh) * layer.shape().entry_bytes());
    store(rows);
  };
  guarded([&] { rows_->pass(block, once, scaled); });
}

void OffloadedRows::keep(std::span<const int32_t> rows) {
  guarded([&] { rows_->keep(rows); });
}

std::span<const float> OffloadedRows::finish() {
  const std::span<const float> logits = guarded([&] { return rows_->finish(); });
  alike_ = !by_layer_;
  for (int64_t layer = 0; alike_ && layer < std::ssize(host_->layers); ++layer) DeviceMirrors::appended(*host_, layer);
  return logits;
}

}  // namespace kvarena::device
