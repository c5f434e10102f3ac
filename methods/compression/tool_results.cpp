#include "harness/method/tool_results.h"

#include <algorithm>
#include <numeric>
#include <ranges>

#include "harness/method/registry.h"

namespace kvarena {
namespace {

/// The request's results, in their order.
struct ResultIndex final : public LayerIndex {
  struct Stretch {
    int64_t begin = 0;
    int64_t end = 0;  // positions begin .. end-1
    bool stays = false;
  };

  explicit ResultIndex(const LedgerPtr& ledger) : results(LedgerAllocator<Stretch>(ledger)) {}
  ResultIndex(const ResultIndex& from, const LedgerPtr& ledger)
      : results(from.results.begin(), from.results.end(), LedgerAllocator<Stretch>(ledger)) {}

  LedgerVector<Stretch> results;

  [[nodiscard]] int64_t bytes() const override { return static_cast<int64_t>(results.capacity() * sizeof(Stretch)); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<ResultIndex>(*this, ledger);
  }
};

/// Old results of tools leave all heads of all layers, by a rule and without a look at them: the newest stay, after the
/// prompt and as further ones come. What was computed from a result stays, and keys keep their rotation. Agents do so
/// with messages: observation masking (Lindenbauer et al. 2025, arXiv:2508.21433, section 3), and the clearing of tool
/// uses in Anthropic's interface (clear_tool_uses_20250919) and in LangChain's ClearToolUsesEdit, whose `keep`,
/// `trigger` and `exclude_tools` are followed. There a line stands in for a result, and the messages behind it are read
/// again; here the result's first tokens can stay, and nothing is read again.
class ToolResults final : public Method, public ReadsToolResults {
 public:
  void parameters(ParameterVisitor& p) override {
    p("newest", newest_).min(0).doc("results that stay whole, those that the request goes on with");
    p("stub", stub_).min(0).doc("first tokens of an older result that stay");
    p("trigger", trigger_).min(0).doc("older results leave when a head holds more entries than this; 0 = at once");
    p("exclude", exclude_).doc("names of tools whose results stay, with commas between them; none = of no tool");
  }

  void take_results(KvCache& cache, std::span<const ResultTokens> results) const override {
    auto index = std::make_unique<ResultIndex>(cache.ledger);
    for (const ResultTokens& result : results) {
      index->results.push_back({result.begin, result.end, excluded(result.tool)});
    }
    cache.index = std::move(index);
  }

  void compress(LayerContext& layer, const LayerObservations& /*seen*/) const override { evict(layer); }
  void after_append(LayerContext& layer) const override { evict(layer); }
  HookAccess reach() const override { return HookAccess::rows; }

 private:
  [[nodiscard]] bool excluded(const std::string& tool) const {
    return std::ranges::any_of(std::views::split(exclude_, ','),
                               [&](const auto& name) { return !tool.empty() && std::ranges::equal(name, tool); });
  }

  void evict(LayerContext& layer) const {
    const auto* const index =
        layer.request == nullptr ? nullptr : dynamic_cast<const ResultIndex*>(layer.request->index.get());
    EntrySegment& tail = layer.cache.tail();
    const int64_t held = tail.entries(0);
    if (index == nullptr || held == 0 || held <= trigger_) return;
    const int64_t next = tail.position(0, held - 1) + 1;
    const auto unfinished = [&](const ResultIndex::Stretch& result) { return result.end > next; };
    const auto whole = std::ranges::find_if(index->results, unfinished) - index->results.begin();
    const auto entry_at = [&](int64_t position) {
      const auto entries = std::views::iota(int64_t{0}, held);
      const auto place = [&](int64_t entry) { return tail.position(0, entry); };
      return std::ranges::lower_bound(entries, position, {}, place) - entries.begin();
    };
    std::vector<int32_t> kept;
    int64_t done = 0;  // entries that were decided on
    const auto keep_until = [&](int64_t end) {
      const auto stay = std::views::iota(static_cast<int32_t>(done), static_cast<int32_t>(end));
      kept.insert(kept.end(), stay.begin(), stay.end());
    };
    for (const auto& [begin, end, stays] : std::span(index->results).first(std::max<int64_t>(0, whole - newest_))) {
      const int64_t first = entry_at(begin + stub_), last = entry_at(end);
      if (stays || first >= last) continue;
      keep_until(first);
      done = last;
    }
    if (done == 0) return;
    keep_until(held);
    const int64_t heads = tail.shape().kv_heads;
    layer.activity.entries_dropped += heads * (held - std::ssize(kept));
    tail.keep(std::vector<std::vector<int32_t>>(static_cast<size_t>(heads), kept));
  }

  int64_t newest_ = 3;
  int64_t stub_ = 0;
  int64_t trigger_ = 0;
  std::string exclude_ = "none";
};

KVARENA_METHOD(ToolResults, Family::compression,
               {.name = "tool_results",
                .title = "Tool results by rule",
                .summary = "Drops results of tools but the newest ones.",
                .paper = "arXiv:2508.21433, section 3"})

}  // namespace
}  // namespace kvarena
