#include <algorithm>
#include <cmath>

#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// Weights e^-x, which sum to 1.
std::vector<double> softmax_of_negatives(std::vector<double> x) {
  const double least = std::ranges::min(x);
  double sum = 0;
  for (double& value : x) sum += value = std::exp(least - value);
  for (double& value : x) value /= sum;
  return x;
}

/// One side of PartRows.
using Rows = std::vector<std::vector<float>>;

int64_t length_of(const ReusePrompt& prompt, size_t part) { return prompt.parts[part].end - prompt.parts[part].begin; }

/// |a - b|_2 over all numbers of a; b may have more tokens.
double distance(const Rows& a, const Rows& b) {
  double sum = 0;
  for (size_t layer = 0; layer < a.size(); ++layer) {
    for (size_t i = 0; i < a[layer].size(); ++i) sum += std::pow(double{a[layer][i]} - double{b[layer][i]}, 2);
  }
  return std::sqrt(sum);
}

/// [tokens] mean of |a - b| over layers, heads and channels; b may have more tokens.
std::vector<double> token_distances(const Rows& a, const Rows& b, int64_t tokens) {
  std::vector<double> sums(static_cast<size_t>(tokens));
  size_t width = 0;  // of all layers
  for (size_t layer = 0; layer < a.size(); ++layer) {
    const size_t own = a[layer].size() / sums.size();
    for (size_t i = 0; i < a[layer].size(); ++i) sums[i / own] += std::abs(double{a[layer][i]} - double{b[layer][i]});
    width += own;
  }
  for (double& sum : sums) sum /= static_cast<double>(width);
  return sums;
}

/// Anchors of one part, keys or values.
struct Anchors {
  std::vector<std::vector<double>> distances;  // [anchors][tokens]
  std::vector<Rows> offsets;                   // [anchors]

  void add(const Rows& part, const Rows& alone, Rows in_prompt, int64_t tokens) {
    distances.push_back(token_distances(part, alone, tokens));
    for (size_t layer = 0; layer < alone.size(); ++layer) {
      for (size_t i = 0; i < alone[layer].size(); ++i) in_prompt[layer][i] -= alone[layer][i];
    }
    offsets.push_back(std::move(in_prompt));
  }
  /// Adds the mean offset to each token of `part`, but in layer 0.
  void offset(Rows& part, int64_t tokens) const {
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> near;
      for (const std::vector<double>& own : distances) near.push_back(own[t]);
      const std::vector<double> weights = softmax_of_negatives(near);
      for (size_t layer = 1; layer < part.size(); ++layer) {
        const auto width = std::ssize(part[layer]) / tokens;
        for (int64_t i = t * width; i < (t + 1) * width; ++i) {
          double sum = 0;
          for (size_t a = 0; a < offsets.size(); ++a) sum += weights[a] * double{offsets[a][layer][i]};
          part[layer][i] += static_cast<float>(sum);
        }
      }
    }
  }
};

/// KVCOMM: what a part's entries gain from what stands before it, their offsets, is much like what similar parts gain.
/// Parts computed in the prompt are anchors, which know their offsets; each other part i gets the anchors' mean:
///   K_i += sum over a of softmax_a(-mean |K_i - K_a|) (K*_a - K_a)     (values likewise)
/// with keys turned to the part's place. K is the part computed alone, K* in the prompt; the mean of a token is over
/// layers, heads and channels, and its place in the part pairs it with the anchor's. Layer 0 has no offsets. A part is
/// an anchor itself when fewer than two anchors are as long, or when none is near: for w = softmax(-||V_i - V_a||_2)
///   -sum of w log2 w > threshold * log2 of the number of anchors
/// Ye et al. 2025, arXiv:2510.12872, sections 3.3 and 3.4, as in FastMAS/KVCOMM (48ca0b3). There a part is what an
/// agent puts in a place of its prompt, anchors come from the requests before, at most 20 for each place, and a prompt
/// with one part without anchors is computed whole. Here anchors are the prompt's own earlier parts, since a request's
/// results depend on no other; the question, which follows the last part, is computed, so it needs no offsets.
class KvComm final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("threshold", threshold_).min(0).max(1).doc("share of the largest entropy above which no anchor is near");
  }
  bool adjusts() const override { return true; }

  std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    std::vector<int32_t> selected;
    std::vector<size_t> anchors;
    for (size_t part = 1; part < prompt.parts.size(); ++part) {
      if (has_near(prompt, part, as_long(prompt, part, anchors))) continue;
      anchors.push_back(part);
      for (int64_t t = prompt.parts[part].begin; t < prompt.parts[part].end; ++t)
        selected.push_back(static_cast<int32_t>(t));
    }
    return selected;
  }

  PartRows adjusted(const ReusePrompt& prompt, size_t part, std::span<const size_t> computed) const override {
    const int64_t place = prompt.parts[part].begin, tokens = length_of(prompt, part);
    PartRows rows = prompt.entries->alone(part, place);
    Anchors keys, values;
    for (const size_t anchor : as_long(prompt, part, computed)) {
      const PartRows alone = prompt.entries->alone(anchor, place);
      PartRows in_prompt = prompt.entries->in_prompt(anchor, place);
      keys.add(rows.keys, alone.keys, std::move(in_prompt.keys), tokens);
      values.add(rows.values, alone.values, std::move(in_prompt.values), tokens);
    }
    keys.offset(rows.keys, tokens);
    values.offset(rows.values, tokens);
    return rows;
  }

 private:
  /// Returns those of `anchors` that have at least the tokens of the part.
  static std::vector<size_t> as_long(const ReusePrompt& prompt, size_t part, std::span<const size_t> anchors) {
    std::vector<size_t> found;
    for (const size_t anchor : anchors) {
      if (length_of(prompt, anchor) >= length_of(prompt, part)) found.push_back(anchor);
    }
    return found;
  }
  [[nodiscard]] bool has_near(const ReusePrompt& prompt, size_t part, const std::vector<size_t>& anchors) const {
    if (anchors.size() < 2) return false;
    const PartRows own = prompt.entries->alone(part, 0);
    std::vector<double> distances;
    for (const size_t anchor : anchors)
      distances.push_back(distance(own.values, prompt.entries->alone(anchor, 0).values));
    double entropy = 0;
    for (const double weight : softmax_of_negatives(distances)) {
      if (weight > 0) entropy -= weight * std::log2(weight);
    }
    return entropy <= threshold_ * std::log2(static_cast<double>(anchors.size()));
  }

  double threshold_ = 0.3;
};

KVARENA_REUSER(KvComm, {.name = "kvcomm",
                        .title = "KVCOMM",
                        .summary = "Adds to parts computed alone what similar parts gained from the prompt.",
                        .paper = "arXiv:2510.12872"});

}  // namespace
}  // namespace kvarena
