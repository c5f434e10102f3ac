#pragma once

namespace kvarena::kernels {

/// How products with bf16 numbers round what they are multiplied by: not at all, or to bf16 too. Sums are float32 in
/// both.
enum class Arithmetic { exact, bf16 };

}  // namespace kvarena::kernels
