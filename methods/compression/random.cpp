#include "harness/core/random.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Uniform scores: the floor under every dropping method.  A draw belongs to (seed, layer, kv head, position), so it
/// does not depend on chunks or on other entries. Nothing is protected; after the prompt alone.
class Random final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override { p("seed", seed_).min(0).doc("which draw"); }
  at::Tensor score(const LayerView& layer) const override {
    const at::Tensor positions = layer.positions();
    at::Tensor scores = at::empty({layer.kv_heads(), layer.n()}, at::kFloat);
    for (int64_t head = 0; head < layer.kv_heads(); ++head) {
      const RandomStream stream(static_cast<uint64_t>(seed_),
                                fmt::format("random/{}/{}", layer.layer(), layer.first_head() + head));
      const auto* const position = positions[head].data_ptr<int64_t>();
      auto* const row = scores[head].data_ptr<float>();
      for (int64_t i = 0; i < layer.n(); ++i) {
        row[i] = static_cast<float>(stream.uniform(static_cast<uint64_t>(position[i])));
      }
    }
    return scores;
  }

 private:
  int64_t seed_ = 0;
};

KVARENA_SCORER(Random, {.name = "random",
                        .title = "Random",
                        .summary = "Keeps entries drawn at random.",
                        .paper = "kvpress, random_press.py"});

}  // namespace
}  // namespace kvarena
