#include "harness/method/python/codec.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "harness/cache/simulated_segment.h"
#include "harness/method/python/entry_tensors.h"

namespace kvarena {
namespace {

using nlohmann::json;

at::Tensor floats(std::vector<float>& numbers, const EntryBlock& block) {
  return at::from_blob(numbers.data(), {block.kv_heads, block.count, block.head_dim}, at::kFloat);
}

/// Sends blocks of one layer there and back.
class RoundTrip {
 public:
  RoundTrip(const PythonPart& part, const LayerContext& layer) : child_(part.child()), request_(part.request("code")) {
    request_.update({{"layer", layer.layer}, {"layers", layer.layers}});
    if (layer.model != nullptr) rotation_ = layer.model->rotation_of(layer.layer);
  }

  void operator()(EntryBlock& block) const {
    json request = request_;
    request.update({{"n", block.count}, {"kv_heads", block.kv_heads}, {"head_dim", block.head_dim}});
    const at::Tensor decoded = child_->ask_tensor(request, [&](const json& wish) { return tensor_for(block, wish); });
    const auto count = static_cast<ptrdiff_t>(block.keys.size());
    const auto* numbers = decoded.const_data_ptr<float>();
    std::copy_n(numbers, count, block.keys.data());
    std::copy_n(numbers + count, count, block.values.data());
  }

 private:
  [[nodiscard]] at::Tensor tensor_for(EntryBlock& block, const json& wish) const {
    const auto what = wish.at("want").get<std::string>();
    if (what == "keys") return floats(block.keys, block);
    if (what == "values") return floats(block.values, block);
    if (what == "positions") return positions_tensor(block.positions);
    return rotation_tensor(what, rotation_);
  }

  std::shared_ptr<PythonChild> child_;
  json request_;
  Rotation rotation_;
};

}  // namespace

std::unique_ptr<PackedSegment> PythonCodec::make_segment(const LayerContext& layer) const {
  return std::make_unique<SimulatedSegment>(layer.cache.shape(), part_.made().at("bits").get<double>(),
                                            RoundTrip(part_, layer), layer.cache.ledger());
}

int64_t PythonCodec::key_block() const { return part_.made().at("block").get<int64_t>(); }

int64_t PythonCodec::key_residual() const { return part_.made().at("residual").get<int64_t>(); }

}  // namespace kvarena
