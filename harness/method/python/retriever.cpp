#include "harness/method/python/retriever.h"

#include <ATen/ATen.h>

#include "harness/method/entry_scores.h"
#include "harness/method/python/entry_tensors.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Knows which layer it is of; a Python process holds no state of a request.
struct LayerNumber final : public LayerIndex {
  int64_t layer = 0, layers = 0;
  Rotation rotation;

  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<LayerNumber>(*this);
  }
};

enum class Side { keys, values };

at::Tensor rows_of(const EntrySegment& entries, Side side) {
  const LayerShape& shape = entries.shape();
  at::Tensor rows = at::empty({shape.kv_heads, entries.entries(0), shape.head_dim}, at::kFloat);
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    auto* to = rows[head].data_ptr<float>();
    entries.read(head, side == Side::keys ? to : nullptr, side == Side::values ? to : nullptr);
  }
  return rows;
}

at::Tensor positions_of(const EntrySegment& entries) {
  std::vector<std::vector<int32_t>> heads;
  for (int64_t head = 0; head < entries.shape().kv_heads; ++head) heads.push_back(entries.positions(head));
  return positions_tensor(heads);
}

at::Tensor queries_of(const LayerQueries& queries, const LayerShape& shape) {
  return at::from_blob(const_cast<float*>(queries.q), {shape.q_heads, shape.head_dim}, at::kFloat);
}

}  // namespace

Protection PythonRetriever::protect(int64_t /*budget*/) const {
  return {.sinks = part_.made().at("sinks").get<int64_t>(), .recent = part_.made().at("recent").get<int64_t>()};
}

std::unique_ptr<LayerIndex> PythonRetriever::make_index(const LayerShape& /*shape*/,
                                                        const LedgerPtr& /*ledger*/) const {
  return std::make_unique<LayerNumber>();
}

void PythonRetriever::start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const {
  auto& number = static_cast<LayerNumber&>(index);
  number.layer = layer.layer;
  number.layers = layer.layers;
  if (layer.model != nullptr) number.rotation = layer.model->rotation_of(layer.layer);
}

Selection PythonRetriever::select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                                  const Candidates& among) const {
  const auto& number = static_cast<const LayerNumber&>(index);
  const LayerShape& shape = entries.shape();
  json request = part_.request("select");
  request.update({{"layer", number.layer},
                  {"layers", number.layers},
                  {"n", entries.entries(0)},
                  {"kv_heads", shape.kv_heads},
                  {"q_heads", shape.q_heads},
                  {"head_dim", shape.head_dim}});
  const auto tensor_for = [&](const json& wish) {
    const auto what = wish.at("want").get<std::string>();
    if (what == "keys") return rows_of(entries, Side::keys);
    if (what == "values") return rows_of(entries, Side::values);
    if (what == "positions") return positions_of(entries);
    if (what == "queries") return queries_of(queries, shape);
    return rotation_tensor(what, number.rotation);
  };
  const at::Tensor scores = part_.child()->ask_tensor(request, tensor_for);  // [1, kv_heads or q_heads, n]
  Selection selection;
  for (int64_t row = 0; row < scores.size(1); ++row) {
    const at::Tensor own = scores[0][row];
    selection.lists.push_back(
        best_candidates({own.const_data_ptr<float>(), static_cast<size_t>(own.numel())}, among, name_));
  }
  return selection;
}

}  // namespace kvarena
