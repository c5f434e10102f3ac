#include "harness/method/layer_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::string text_of(const WordOrNumbers& chosen) {
  if (const auto* word = std::get_if<std::string>(&chosen)) return fmt::format("\"{}\"", *word);
  return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(chosen), ", "));
}

}  // namespace

LayerChoice LayerChoice::without_windows() {
  LayerChoice choice;
  choice.chosen_ = "full";
  return choice;
}

bool LayerChoice::may_slide() const { return chosen_ != WordOrNumbers("full"); }
bool LayerChoice::only_sliding() const { return chosen_ == WordOrNumbers("sliding"); }

void LayerChoice::parameters(ParameterVisitor& p) {
  p("layers", chosen_)
      .one_of({"all", "full", "sliding"})
      .doc("layers that it acts on, by kind or number; full: those without a sliding window. Others stay exact");
}

void LayerChoice::check(const std::string& place, std::vector<std::string>& problems) const {
  const auto* const list = std::get_if<std::vector<int64_t>>(&chosen_);
  if (list == nullptr) return;
  const bool ascending = std::ranges::is_sorted(*list, std::ranges::less_equal{});
  if (!list->empty() && list->front() >= 0 && ascending) return;
  problems.push_back(describe({.place = place + ".layers",
                               .found = list->empty() ? "no layer" : text_of(chosen_),
                               .expected = "numbers of layers from 0 on, ascending, at least one"}));
}

bool LayerChoice::holds(int64_t layer, const LayerShape& shape) const {
  if (const auto* const list = std::get_if<std::vector<int64_t>>(&chosen_)) {
    return std::ranges::binary_search(*list, layer);
  }
  const auto& word = std::get<std::string>(chosen_);
  return word == "all" || (word == "sliding") == (shape.window > 0);
}

std::vector<int64_t> LayerChoice::of(const KvCache& cache) const {
  const auto layers = std::ssize(cache.layers);
  std::vector<int64_t> chosen;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (holds(layer, cache.layers[layer].shape())) chosen.push_back(layer);
  }
  const auto* const list = std::get_if<std::vector<int64_t>>(&chosen_);
  if (list != nullptr && chosen.size() < list->size()) {
    fail({.place = "layers",
          .found = text_of(chosen_),
          .expected = fmt::format("numbers from 0 to {}, of the model's layers", layers - 1)});
  }
  if (!chosen.empty()) return chosen;
  const bool sliding = only_sliding();
  fail({.place = "layers",
        .found = fmt::format("{}, of which this model has none: every layer {}", text_of(chosen_),
                             sliding ? "sees everything" : "has a sliding window"),
        .expected = "layers that the method acts on",
        .action = sliding ? R"(leave "layers" out, or write "all")" : R"(write "layers": "all")"});
}

}  // namespace kvarena
