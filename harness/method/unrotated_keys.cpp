#include "harness/method/unrotated_keys.h"

#include <ATen/ATen.h>

#include "harness/cache/codec_side_data.h"

namespace kvarena {

at::Tensor unrotated_keys(const LayerView& layer) {
  const RotaryKeys rotary(layer.model().rotation_of(layer.layer()).inverse);
  at::Tensor keys = layer.keys().contiguous().clone();
  for (int64_t h = 0; h < layer.kv_heads(); ++h) {
    const at::Tensor positions = layer.positions()[h].to(at::kInt).contiguous();
    const auto* const first = positions.const_data_ptr<int32_t>();
    rotary.undo(keys[h].mutable_data_ptr<float>(), {first, first + layer.n()});
  }
  return keys;
}

}  // namespace kvarena
