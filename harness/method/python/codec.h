#pragma once
// Codecs that are written in Python (python/kvarena/methods.py).

#include "harness/method/codec.h"
#include "harness/method/python/part.h"

namespace kvarena {

/// Asks a Python process for what entries come back as. Nothing is packed: bits are those that the codec declares.
class PythonCodec final : public OfPython<Codec> {
 public:
  using OfPython::OfPython;

  [[nodiscard]] std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override;
  [[nodiscard]] int64_t key_block() const override;
  [[nodiscard]] int64_t key_residual() const override;
};

}  // namespace kvarena
