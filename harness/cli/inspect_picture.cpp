#include "harness/cli/inspect_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/chart.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr int64_t kMostColumns = 200;  // more could not be told apart
constexpr double kRowPixels = 9;

/// Positions in equal bins along the prompt.
class Bins {
 public:
  explicit Bins(int64_t positions)
      : positions_(positions), width_(std::max<int64_t>(1, (positions + kMostColumns - 1) / kMostColumns)) {}

  [[nodiscard]] int64_t count() const { return (positions_ + width_ - 1) / width_; }
  [[nodiscard]] int64_t begin(int64_t bin) const { return bin * width_; }
  [[nodiscard]] int64_t end(int64_t bin) const { return std::min(positions_, (bin + 1) * width_); }

  /// Adds `weight` per listed position to the share of its bin. Positions past the prompt are not shown.
  void add(std::vector<double>& shares, const std::vector<int32_t>& listed, double weight) const {
    for (const int32_t position : listed) {
      if (position >= positions_) continue;
      const int64_t bin = position / width_;
      shares[bin] += weight / static_cast<double>(end(bin) - begin(bin));
    }
  }

 private:
  int64_t positions_;
  int64_t width_;
};

bool selects(const Inspection& inspection, size_t layer) {
  return std::ranges::any_of(inspection.steps, [&](const StepInfo& step) { return !step.selected[layer].empty(); });
}

/// Share of each bin that kv head `head` of `layer` keeps, or attends to on average over the steps.
std::vector<double> shares_of(const Inspection& inspection, const Bins& bins, size_t layer, size_t head) {
  const LayerInfo& info = inspection.layers[layer];
  std::vector<double> shares(static_cast<size_t>(bins.count()), 0.0);
  if (!selects(inspection, layer)) {
    bins.add(shares, info.positions[head], 1);
    return shares;
  }
  for (const StepInfo& step : inspection.steps) {
    const auto& lists = step.selected[layer];
    const double steps = static_cast<double>(inspection.steps.size());
    if (lists.empty()) {
      bins.add(shares, info.positions[head], 1 / steps);
      continue;
    }
    const size_t per_head = lists.size() / info.positions.size();  // lists of query heads share their kv head's row
    for (size_t i = head * per_head; i < (head + 1) * per_head; ++i) {
      bins.add(shares, lists[i], 1 / (steps * static_cast<double>(per_head)));
    }
  }
  return shares;
}

/// Neighbouring bins of one shade become one line.
void add_row(json& values, double row, const Bins& bins, const std::vector<double>& shares) {
  for (int64_t bin = 0; bin < bins.count();) {
    int64_t last = bin;
    while (last + 1 < bins.count() && shares[last + 1] == shares[bin]) ++last;
    if (shares[bin] > 0) {
      values.push_back(
          {{"row", row}, {"from", bins.begin(bin)}, {"to", bins.end(last)}, {"share", std::min(1.0, shares[bin])}});
    }
    bin = last + 1;
  }
}

}  // namespace

std::string inspection_picture(const Inspection& inspection, int64_t prompt_tokens, const std::string& title) {
  const Bins bins(prompt_tokens);
  json values = json::array();
  bool any_selects = false;
  size_t rows = 0;
  for (size_t layer = 0; layer < inspection.layers.size(); ++layer) {
    any_selects = any_selects || selects(inspection, layer);
    const size_t heads = inspection.layers[layer].positions.size();
    for (size_t head = 0; head < heads; ++head) {
      // Between the ticks of this layer and the next, heads from below.
      const double row = static_cast<double>(layer) + (static_cast<double>(head) + 0.5) / static_cast<double>(heads);
      add_row(values, row, bins, shares_of(inspection, bins, layer, head));
    }
    rows += heads;
  }
  const json spec{{"$schema", "https://vega.github.io/schema/vega-lite/v5.json"},
                  {"title", title},
                  {"data", {{"values", std::move(values)}}},
                  {"height", kRowPixels * static_cast<double>(rows)},
                  {"mark", {{"type", "rule"}, {"strokeWidth", kRowPixels - 1}}},
                  {"encoding",
                   {{"y",
                     {{"field", "row"},
                      {"type", "quantitative"},
                      {"title", "layer, its kv heads above its tick"},
                      {"scale", {{"domain", {0, inspection.layers.size()}}}}}},
                    {"x",
                     {{"field", "from"},
                      {"type", "quantitative"},
                      {"title", "position in the prompt"},
                      {"scale", {{"domain", {0, prompt_tokens}}}}}},
                    {"x2", {{"field", "to"}}},
                    {"color",
                     {{"field", "share"},
                      {"type", "quantitative"},
                      {"title", any_selects ? "share attended to, mean over steps" : "share kept"},
                      {"scale", {{"domain", {0, 1}}, {"range", {"#e8eef4", "#0072b2"}}}}}}}}};
  return reports::render_svg(spec, {.width = 1000, .standalone = true});
}

}  // namespace kvarena::cli
