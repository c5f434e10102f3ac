#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"
#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// CacheBlend: the first layers are computed for every token, which shows whose entries differ from the stored ones;
/// these tokens go on, all others keep their stored entries from there.
///   deviation(t) = sum over heads and channels of (V_fresh - V_stored)^2
///   kept: the floor(recompute * context tokens) largest, and the question
/// Yao et al. 2025, arXiv:2405.16444, section 4; the authors' code (vllm_blend) judges values only, once, at layer 1.
/// The paper's gradual filtering, whose shares it does not print, is several check layers with falling shares. Where
/// the code differs by mistake we follow the paper: the whole question goes on, not its last token alone, and a query
/// sees no position behind its own.
class CacheBlend final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recompute", recompute_).min(0).max(1).doc("share of the context's tokens that go on from the last check layer");
    p("check_layers", check_layers_).min(0).doc("layers, counted from 0, at which deviations are judged; ascending");
    p("schedule", schedule_).min(0).max(1).doc("share that goes on from each check layer but the last; falling");
    p("deviation", deviation_).one_of({"v", "k", "kv"}).doc("of values, keys, or both");
  }

  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (check_layers_.empty() || !std::ranges::is_sorted(check_layers_, std::less_equal{})) {
      problems.push_back(describe({.place = place + ".check_layers",
                                   .found = fmt::format("[{}]", fmt::join(check_layers_, ", ")),
                                   .expected = "at least one layer, each larger than the one before"}));
      return;
    }
    if (schedule_.size() + 1 != check_layers_.size()) {
      problems.push_back(
          describe({.place = place + ".schedule",
                    .found = fmt::format("{} shares", schedule_.size()),
                    .expected = fmt::format("{}, one for each check layer but the last", check_layers_.size() - 1)}));
      return;
    }
    for (size_t i = 0; i < schedule_.size(); ++i) {
      if (schedule_[i] >= share(i + 1)) continue;
      problems.push_back(describe({.place = fmt::format("{}.schedule[{}]", place, i),
                                   .found = fmt::format("{}", schedule_[i]),
                                   .expected = fmt::format("at least {}, the share after it", share(i + 1))}));
    }
  }

  std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    std::vector<int32_t> all(static_cast<size_t>(prompt.question));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  bool narrows(int64_t layer) const override { return std::ranges::find(check_layers_, layer) != check_layers_.end(); }

  std::vector<int32_t> narrow(const EntryDeviation& seen) const override {
    const auto check = static_cast<size_t>(std::ranges::find(check_layers_, seen.layer) - check_layers_.begin());
    const auto count = static_cast<size_t>(share(check) * static_cast<double>(seen.context));
    std::vector<int32_t> order(seen.positions.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return distance(seen, a) > distance(seen, b); });
    order.resize(std::min(order.size(), count));
    for (int32_t& index : order) index = seen.positions[index];
    std::ranges::sort(order);
    return order;
  }

 private:
  [[nodiscard]] double share(size_t check) const { return check < schedule_.size() ? schedule_[check] : recompute_; }
  [[nodiscard]] float distance(const EntryDeviation& seen, int32_t i) const {
    if (deviation_ == "k") return seen.keys[i];
    return deviation_ == "v" ? seen.values[i] : seen.keys[i] + seen.values[i];
  }

  double recompute_ = 0.15;
  std::vector<int64_t> check_layers_ = {1};
  std::vector<double> schedule_;
  std::string deviation_ = "v";
};

KVARENA_REUSER(CacheBlend, {.name = "cacheblend",
                            .title = "CacheBlend",
                            .summary = "Recomputes the tokens whose first layers differ most from the stored entries.",
                            .paper = "arXiv:2405.16444, section 4"});

}  // namespace
}  // namespace kvarena
