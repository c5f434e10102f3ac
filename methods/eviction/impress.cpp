#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/method/eviction.h"
#include "harness/method/layer_view.h"
#include "harness/method/selection.h"

namespace kvarena {
namespace {

/// Chunks of contexts by what requests need of them: a few query heads of each layer score the tokens by the attention
/// of the prompt's last queries, the best `keep` of the tokens are important, and a request reads the chunks that hold
/// one. A chunk is worth how often it was read times its share of important tokens; the least worthy leaves a full
/// tier, and one that is read comes up unless it is the least worthy there.
/// So Feng et al. 2025 (arXiv:2512.14946, section 6.1) describe their baseline, which like their own system lies in
/// chunks of LMCache: some tokens in all layers (`layers` 0). Chen et al. 2025, FAST, pages 187-201, choose by layers
/// (1), anew for each request by the attention of its own query, and attend to what is important alone, as here; they
/// read layers whose probe heads disagree whole, and rebuild chunks from time to time so that important tokens lie
/// together. No code by the authors is public; the tests restate choice and order in plain loops.
class Impress final : public PlacingMethod, private storage::VictimPolicy, private Chunking {
 public:
  void parameters(ParameterVisitor& p) override {
    p("keep", keep_).min(0).max(1).doc("share of the tokens that are important, at least one of them");
    p("probe_heads", probe_heads_).min(0).max(1).doc("share of a layer's query heads that score tokens, evenly spread");
    p("chunk", chunk_).min(16).doc("tokens of a chunk, a multiple of 16");
    p("layers", layers_).min(0).doc("layers of a chunk, which share their important tokens; 0: all");
    p("window", window_).min(1).doc("queries at the end of the prompt whose attention counts");
    p("attend_to_others", attend_to_others_)
        .doc("requests attend to the other tokens of the chunks that they read as well");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (chunk_ % 16 != 0) {
      problems.push_back(fmt::format("{}.chunk: found {} tokens, expected a multiple of 16", place, chunk_));
    }
  }
  Needs needs() const override { return {.window = window_}; }
  const storage::Policy* placement() const override { return this; }
  const Chunking* chunking() const override { return this; }

 private:
  bool leaves_before(const storage::Context& a, const storage::Context& b) const override {
    const double worth_a = static_cast<double>(a.accesses) * a.importance;
    const double worth_b = static_cast<double>(b.accesses) * b.importance;
    return worth_a != worth_b ? worth_a < worth_b : a.last_access < b.last_access;
  }
  bool promotes_on_hit() const override { return true; }

  int64_t chunk_tokens() const override { return chunk_; }
  int64_t chunk_layers(int64_t layers) const override { return layers_ == 0 ? layers : layers_; }
  Needs observed() const override { return needs(); }
  bool attends_to_others() const override { return attend_to_others_; }

  std::vector<int32_t> needed(std::span<const LayerContext> layers,
                              std::span<const LayerObservations> seen) const override {
    at::Tensor scores;
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerView view(layers[i], &seen[i]);
      const at::Tensor of_layer = view.window_attention(window_).index_select(0, probes(view.q_heads())).sum(0);
      scores = i == 0 ? of_layer : scores + of_layer;
    }
    const int64_t n = scores.numel();
    const int64_t important = std::max<int64_t>(1, std::llround(keep_ * static_cast<double>(n)));
    return select_best({scores.const_data_ptr<float>(), static_cast<size_t>(n)}, important, {});
  }

  /// Indices of the query heads that score.
  at::Tensor probes(int64_t heads) const {
    const auto count = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(probe_heads_ * static_cast<double>(heads))));
    return at::arange(count, at::kLong).mul(heads).div(count, "floor");
  }

  double keep_ = 0.4;
  double probe_heads_ = 0.375;
  int64_t chunk_ = 64;
  int64_t layers_ = 0;
  int64_t window_ = 64;
  bool attend_to_others_ = false;
};

KVARENA_METHOD(Impress, Family::eviction,
               {.name = "impress",
                .title = "IMPRESS",
                .summary = "Reads the chunks that hold important tokens; a full tier gives up the chunk whose reads, "
                           "times its share of them, are fewest.",
                .paper = "FAST 2025, pages 187-201"});

}  // namespace
}  // namespace kvarena
