#pragma once
// Makes a Method of the part that an author writes (Scorer, Codec, ...).

#include <memory>
#include <utility>

#include "harness/method/fitter.h"
#include "harness/method/method.h"

namespace kvarena {

/// A method around a part, whose parameters, checks, needs and weights it has.
template <typename Part>
class PartMethod : public Method {
 public:
  explicit PartMethod(std::unique_ptr<Part> part) : part_(std::move(part)) {}

  void parameters(ParameterVisitor& p) override { part_->parameters(p); }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    part_->check(place, problems);
  }
  [[nodiscard]] Needs needs() const override { return part_->needs(); }
  [[nodiscard]] std::unique_ptr<Fitter> fitter() const override { return part_->fitter(); }

 protected:
  std::unique_ptr<Part> part_;
};

}  // namespace kvarena
