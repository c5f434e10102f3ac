#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Each head keeps what its kind of attention needs.  At the end of the prompt a head takes the first of these sets
/// that holds at least `recovery` of its attention (mean over the prompt's queries and the group):
///   special tokens;  + punctuation;  + the `frequent` share of entries with the largest sums of attention;
///   + the `local` share of the newest;  everything
/// and keeps to it while decoding: new tokens of its classes stay, sums go on, the window moves on. The first 4 entries
/// belong to every set.  Ge et al. 2023, arXiv:2310.01801, section 3; order, shares and criterion as in cold-compress
/// (KVCacheHybrid), where the authors' repository points; the paper's own threshold is 0.95 on another measure.
/// With every entry travel 8 bytes: its class and the head's set, and the sum of attention.
class FastGen final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recovery", recovery_).above(0).doc("attention mass that a head's set must hold; above 1 keeps everything");
    p("frequent", frequent_).min(0).max(1).doc("share of the prompt's entries that may stay for their sums");
    p("local", local_).min(0).max(1).doc("share of the prompt's entries that may stay for being new");
  }
  Needs needs() const override { return {.prompt_attention = true, .step_attention = true}; }
  bool budgeted() const override { return false; }
  bool evicts_while_decoding() const override { return true; }
  int64_t score_width() const override { return 2; }

  /// 1 for entries of the head's set, 0 for others.
  at::Tensor score(const LayerView& layer) const override {
    const Seen seen = layer.decoding() ? recall(layer) : profile(layer);
    at::Tensor member = at::zeros({layer.kv_heads(), layer.n()});
    for (int64_t head = 0; head < layer.kv_heads(); ++head) {
      const std::vector<bool> set = members(seen.heads[head], layer.prompt_tokens());
      auto* row = member[head].data_ptr<float>();
      for (size_t i = 0; i < set.size(); ++i) row[i] = set[i] ? 1.0F : 0.0F;
    }
    return member;
  }
  void refine(const LayerView& /*view*/, LayerScores& scores, HeadBudgets& budgets) const override {
    for (size_t head = 0; head < budgets.size(); ++head) {
      budgets[head] = std::ranges::count(scores.heads[head], 1.0F);
    }
  }
  at::Tensor remember_prompt(const LayerView& layer) const override {
    const Seen seen = profile(layer);
    at::Tensor start = at::empty({layer.kv_heads(), layer.n(), 2});
    for (int64_t head = 0; head < layer.kv_heads(); ++head) {
      auto* to = start[head].data_ptr<float>();
      for (size_t i = 0; i < seen.heads[head].classes.size(); ++i) {
        to[2 * i] = static_cast<float>(kClasses * seen.heads[head].set + seen.heads[head].classes[i]);
        to[2 * i + 1] = seen.heads[head].sums[i];
      }
    }
    return start;
  }
  void observe(const StepAttention& step) const override {
    const int64_t group = step.group();
    for (int64_t head = 0; head < step.entries->shape().kv_heads; ++head) {
      const std::span<float> memory = step.entries->entry_scores(head);
      const auto own = memory.size() / 2 - 1 - static_cast<size_t>(step.unseen);
      const int64_t set = static_cast<int64_t>(memory[0]) / kClasses;  // the first entry stays for ever
      memory[2 * own] =
          static_cast<float>(kClasses * set + static_cast<int64_t>(step.model->text.class_of(step.token)));
      for (int64_t h = head * group; h < (head + 1) * group; ++h) {
        for (size_t i = 0; i < memory.size() / 2; ++i) {
          memory[2 * i + 1] += step.attention[h][i] / static_cast<float>(group);
        }
      }
    }
  }

 private:
  static constexpr int64_t kClasses = 4;  // room for TokenClass in one number
  static constexpr size_t kGlobal = 4;    // first entries, in every set
  enum Set : uint8_t { special, punctuation, frequent, local, everything };

  /// A head's entries as far as its set needs them.
  struct Head {
    Set set = everything;
    std::vector<uint8_t> classes;  // TokenClass of each entry
    std::vector<float> sums;       // attention each entry received, mean over the group
  };
  struct Seen {
    std::vector<Head> heads;
  };

  std::vector<bool> members(const Head& head, int64_t prompt_tokens) const {
    const size_t n = head.classes.size();
    const auto share = [&](double part) {
      return std::min(n, static_cast<size_t>(part * static_cast<double>(prompt_tokens)));
    };
    std::vector<bool> in(n, head.set == everything);
    if (head.set == everything) return in;
    for (size_t i = 0; i < n; ++i) {
      const auto kind = static_cast<TokenClass>(head.classes[i]);
      in[i] =
          i < kGlobal || kind == TokenClass::special || (head.set >= punctuation && kind == TokenClass::punctuation);
    }
    if (head.set >= frequent) add_frequent(in, head.sums, share(frequent_));
    if (head.set >= local) std::fill(in.end() - static_cast<int64_t>(share(local_)), in.end(), true);
    return in;
  }

  /// The `count` entries with the largest sums that are not in the set yet; ties to the lower index.
  static void add_frequent(std::vector<bool>& in, const std::vector<float>& sums, size_t count) {
    std::vector<size_t> others;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i]) others.push_back(i);
    }
    if (count < others.size()) {
      const auto better = [&](size_t a, size_t b) { return sums[a] > sums[b] || (sums[a] == sums[b] && a < b); };
      std::ranges::nth_element(others, others.begin() + static_cast<int64_t>(count), better);
      others.resize(count);
    }
    for (const size_t i : others) in[i] = true;
  }

  Seen profile(const LayerView& layer) const {
    const at::Tensor sums = layer.group_mean(layer.prompt_attention()).contiguous();
    const std::span<const int32_t> tokens = layer.tokens();
    Seen seen;
    for (int64_t h = 0; h < layer.kv_heads(); ++h) {
      Head head;
      const float* row = sums.data_ptr<float>() + h * layer.n();
      head.sums.assign(row, row + layer.n());
      for (const int32_t token : tokens)
        head.classes.push_back(static_cast<uint8_t>(layer.model().text.class_of(token)));
      for (const Set set : {special, punctuation, frequent, local, everything}) {
        head.set = set;
        if (mass(head, layer.prompt_tokens()) >= recovery_) break;
      }
      seen.heads.push_back(std::move(head));
    }
    return seen;
  }
  double mass(const Head& head, int64_t prompt_tokens) const {
    const std::vector<bool> in = members(head, prompt_tokens);
    double sum = 0;
    for (size_t i = 0; i < in.size(); ++i) sum += in[i] ? head.sums[i] : 0;
    return sum / static_cast<double>(prompt_tokens);
  }

  static Seen recall(const LayerView& layer) {
    const at::Tensor kinds = layer.entry_scores(0).contiguous();
    const at::Tensor sums = layer.entry_scores(1).contiguous();
    Seen seen;
    for (int64_t h = 0; h < layer.kv_heads(); ++h) {
      Head head;
      const float* kind = kinds.data_ptr<float>() + h * layer.n();
      const float* row = sums.data_ptr<float>() + h * layer.n();
      head.set = static_cast<Set>(static_cast<int64_t>(kind[0]) / kClasses);
      head.sums.assign(row, row + layer.n());
      for (int64_t i = 0; i < layer.n(); ++i) {
        head.classes.push_back(static_cast<uint8_t>(static_cast<int64_t>(kind[i]) % kClasses));
      }
      seen.heads.push_back(std::move(head));
    }
    return seen;
  }

  double recovery_ = 0.9;
  double frequent_ = 0.3;
  double local_ = 0.3;
};

KVARENA_SCORER(FastGen, {.name = "fastgen",
                         .title = "FastGen",
                         .summary = "Each head keeps the smallest of five sets that holds most of its attention.",
                         .paper = "arXiv:2310.01801, section 3"});

}  // namespace
}  // namespace kvarena
