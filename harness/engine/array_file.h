#pragma once
// Files of one array, as others publish them.

#include <filesystem>

#include "harness/method/fitted.h"

namespace kvarena {

/// NumPy's .npy: float32 or float64 in C order. Throws UserError naming the file.
[[nodiscard]] FittedTensor read_npy(const std::filesystem::path& file);

/// PyTorch's .pth: one contiguous float32 tensor by torch.save(). Its pickle is read, not run. Throws UserError naming
/// the file.
[[nodiscard]] FittedTensor read_torch_tensor(const std::filesystem::path& file);

}  // namespace kvarena
