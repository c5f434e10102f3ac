#include "harness/method/python/entry_tensors.h"

#include <ATen/ATen.h>

namespace kvarena {

at::Tensor positions_tensor(const std::vector<std::vector<int32_t>>& heads) {
  std::vector<int64_t> all;
  for (const std::vector<int32_t>& head : heads) all.insert(all.end(), head.begin(), head.end());
  return at::tensor(all, at::kLong).view({std::ssize(heads), std::ssize(heads.front())});
}

at::Tensor rotation_tensor(const std::string& what, const Rotation& rotation) {
  if (what == "rotation_magnitude") return at::tensor({rotation.magnitude}, at::kDouble);
  return at::tensor(rotation.inverse, at::kDouble);
}

}  // namespace kvarena
