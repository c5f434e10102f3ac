#pragma once
// Scorers that are written in Python (python/kvarena/methods.py).

#include "harness/method/python/part.h"
#include "harness/method/scorer.h"

namespace kvarena {

/// Asks a Python process for the scores of each layer, and before for what the scorer reads and protects.
class PythonScorer final : public OfPython<Scorer> {
 public:
  using OfPython::OfPython;

  [[nodiscard]] Needs needs() const override;
  [[nodiscard]] Protection protect(int64_t budget) const override;
  [[nodiscard]] at::Tensor score(const LayerView& layer) const override;
};

}  // namespace kvarena
