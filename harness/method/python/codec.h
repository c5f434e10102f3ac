#pragma once
// Codecs that are written in Python (python/kvarena/methods.py).

#include "harness/method/codec.h"
#include "harness/method/python/part.h"

namespace kvarena {

/// Asks a Python process for what entries come back as. Nothing is packed: bits are those that the codec declares.
class PythonCodec final : public Codec {
 public:
  explicit PythonCodec(PythonPart part) : part_(std::move(part)) {}

  void parameters(ParameterVisitor& p) override { part_.parameters(p); }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    part_.check(place, problems);
  }
  [[nodiscard]] std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override;
  [[nodiscard]] int64_t key_block() const override;
  [[nodiscard]] int64_t key_residual() const override;

 private:
  PythonPart part_;
};

}  // namespace kvarena
