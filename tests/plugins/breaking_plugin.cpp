// Methods that misbehave in every way a method can, and one that does not, for the torture test.

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness/method/plugin.h"
#include "harness/method/scorer.h"

namespace {

using kvarena::LayerView;

/// Takes memory until somebody ends it.
[[noreturn]] void leak() {
  constexpr size_t kPiece = 4 << 20;
  while (true) {
    auto* piece = static_cast<volatile char*>(std::malloc(kPiece));
    for (size_t i = 0; piece != nullptr && i < kPiece; i += 1024) piece[i] = 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Steady : public kvarena::Scorer {
 public:
  [[nodiscard]] at::Tensor score(const LayerView& layer) const override { return layer.values().norm(2, -1); }
};

/// Breaks at prompts whose length is 0 modulo `every`, in the last layer.
class Breaking final : public Steady {
 public:
  void parameters(kvarena::ParameterVisitor& p) override {
    p("how", how_)
        .one_of({"segfault", "abort", "exit", "leak", "hang", "throw", "nan", "infinite", "shape"})
        .doc("what it does");
    p("every", every_).min(1).doc("at prompts of so many tokens, or a multiple");
  }

  [[nodiscard]] at::Tensor score(const LayerView& layer) const override {
    at::Tensor scores = Steady::score(layer);
    if (layer.n() % every_ != 0 || layer.layer() + 1 < layer.layers()) return scores;
    std::fprintf(stderr, "breaking by %s\n", how_.c_str());
    if (how_ == "segfault") std::raise(SIGSEGV);
    if (how_ == "abort") std::abort();
    if (how_ == "exit") std::_Exit(3);
    if (how_ == "leak") leak();
    while (how_ == "hang") ::pause();
    if (how_ == "throw") throw std::runtime_error("thrown by a method");
    if (how_ == "nan") return scores.fill_(std::numeric_limits<float>::quiet_NaN());
    if (how_ == "infinite") return scores.fill_(std::numeric_limits<float>::infinity());
    return scores.narrow(-1, 0, layer.n() / 2);
  }

 private:
  std::string how_ = "throw";
  int64_t every_ = 1;
};

KVARENA_SCORER(Steady, {.name = "steady",
                        .title = "Steady",
                        .summary = "Keeps the entries with the largest values.",
                        .paper = "none: of the torture test"});
KVARENA_SCORER(Breaking, {.name = "breaking",
                          .title = "Breaking",
                          .summary = "Does what no method should.",
                          .paper = "none: of the torture test"});

}  // namespace

KVARENA_PLUGIN("breaking", "1");
