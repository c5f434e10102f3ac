#include <algorithm>
#include <numeric>

#include "harness/cache/gathered_segment.h"
#include "harness/cache/indexed_segment.h"
#include "harness/method/retriever.h"

namespace kvarena {
namespace {

/// Makes of the chosen entries these and those attended anyway, ascending and once each; the latter have no bias.
void add_attended(std::vector<int32_t>& list, std::vector<float>* biases, const Candidates& among, int64_t entries) {
  const auto begin = std::ranges::lower_bound(list, among.first), end = std::ranges::lower_bound(list, among.last);
  const auto first = static_cast<size_t>(among.first), rest = static_cast<size_t>(entries - among.last);
  if (biases != nullptr) {
    std::vector<float> all(first);
    all.insert(all.end(), biases->begin() + (begin - list.begin()), biases->begin() + (end - list.begin()));
    all.resize(all.size() + rest);
    *biases = std::move(all);
  }
  std::vector<int32_t> all(first);
  std::iota(all.begin(), all.end(), 0);
  all.insert(all.end(), begin, end);
  all.resize(all.size() + rest);
  std::iota(all.end() - static_cast<int64_t>(rest), all.end(), static_cast<int32_t>(among.last));
  list = std::move(all);
}

}  // namespace

RetrievalMethod::RetrievalMethod(std::unique_ptr<Retriever> retriever)
    : PartMethod(std::move(retriever)),
      generated_(part_->default_generated()),
      dense_layers_(part_->default_dense_layers()) {}

void RetrievalMethod::parameters(ParameterVisitor& p) {
  if (part_->budgeted()) budget_.parameters(p);
  protection_.parameters(p);
  p("generated", generated_)
      .one_of({"candidates", "attended"})
      .doc(
          "entries made after the prompt: chosen from like the prompt's, and then `keep` is a fraction of both, or "
          "always attended beside the budget");
  p("dense_layers", dense_layers_).min(0).doc("first layers, which attend to everything");
  part_->parameters(p);
}

void RetrievalMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  if (part_->budgeted()) budget_.check(place, problems);
  part_->check(place, problems);
}

bool RetrievalMethod::attends_to_all(const LayerContext& layer) const {
  // A layer with a sliding window sees few entries as it is.
  return layer.layer < dense_layers_ || budget_.unlimited() || layer.cache.shape().window > 0;
}

Candidates RetrievalMethod::candidates(const LayerContext& layer) const {
  const int64_t n = layer.cache.tail().entries(0);
  const bool generated = generated_ == "candidates";
  const int64_t all = generated ? n : std::min(n, layer.prompt_tokens);  // what a fraction is of
  const int64_t budget =
      part_->budgeted() ? budget_.capacity(all, layer.cache.shape(), layer.budgeted()) : std::max<int64_t>(1, all);
  const Protection wanted = protection_.beside(part_->protect(budget));
  const int64_t recent = std::clamp<int64_t>(wanted.recent, 1, budget);
  const int64_t sinks = std::min({wanted.sinks, budget - recent, n - 1});
  Candidates among{.first = sinks, .budget = budget, .generated = generated};
  among.last = n - recent;
  among.count = budget - sinks - recent;
  if (!among.generated) {
    among.last = std::min(among.last, layer.prompt_tokens);
    among.count = budget - sinks;
  }
  among.last = std::max(among.first, among.last);
  return among;
}

void RetrievalMethod::update_index(LayerContext& layer) const {
  LayerCache& cache = layer.cache;
  if (!cache.index) cache.index = part_->make_index(cache.shape(), cache.ledger());
  const int64_t n = cache.tail().entries(0);
  const int64_t end = generated_ == "candidates" ? n : std::min(n, layer.prompt_tokens);
  if (cache.index->entries >= end) return;
  part_->extend(*cache.index, cache.tail(), end);
  cache.index->entries = end;
}

void RetrievalMethod::compress(LayerContext& layer, const LayerObservations& seen) const {
  if (attends_to_all(layer)) return;
  layer.cache.index = part_->make_index(layer.cache.shape(), layer.cache.ledger());
  part_->start(*layer.cache.index, layer, seen);
  update_index(layer);
}

void RetrievalMethod::select(LayerContext& layer, const LayerQueries& queries) const {
  if (attends_to_all(layer)) return;
  update_index(layer);
  LayerCache& cache = layer.cache;
  const Candidates among = candidates(layer);
  if (queries.q_len > 1 || among.size() == 0 || (part_->budgeted() && among.count >= among.size())) return;

  Selection selected = part_->select(*cache.index, cache.tail(), queries, among);
  if (selected.lists.empty()) return;
  const int64_t n = cache.tail().entries(0);
  for (size_t i = 0; i < selected.lists.size(); ++i) {
    add_attended(selected.lists[i], selected.biases.empty() ? nullptr : &selected.biases[i], among, n);
    layer.activity.entries_skipped += n - std::ssize(selected.lists[i]);
  }
  cache.view = std::make_unique<IndexedSegment>(cache.tail(), selected.lists, cache.ledger(), selected.biases);
  if (selected.stand_ins == nullptr) return;
  cache.view = std::make_unique<ConcatView>(std::move(cache.view), std::move(selected.stand_ins));
}

void RetrievalMethod::observe(LayerContext& layer, const LayerQueries& queries, const float* /*lse*/) const {
  if (!attends_to_all(layer)) part_->observe(*layer.cache.index, layer.cache.tail(), queries);
}

}  // namespace kvarena
