#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/method/dropping_state.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// The layer as a whole where all heads hold the same number, otherwise head by head.
std::vector<LayerView> views_of(const LayerContext& layer, const LayerObservations* seen) {
  const EntrySegment& tail = layer.cache.tail();
  const int64_t heads = layer.cache.shape().kv_heads;
  bool equal = true;
  for (int64_t head = 1; head < heads; ++head) equal = equal && tail.entries(head) == tail.entries(0);
  if (equal) return {LayerView(layer, seen)};
  std::vector<LayerView> views;
  for (int64_t head = 0; head < heads; ++head) views.emplace_back(layer, seen, head);
  return views;
}

std::vector<int32_t> range(int64_t begin, int64_t end) {
  std::vector<int32_t> list(static_cast<size_t>(end - begin));
  std::iota(list.begin(), list.end(), static_cast<int32_t>(begin));
  return list;
}

/// `entries` for every head of every layer.
std::vector<KeptEntries> everywhere(std::span<LayerContext> layers, const std::vector<int32_t>& entries) {
  std::vector<KeptEntries> lists;
  for (const LayerContext& layer : layers) lists.emplace_back(layer.cache.shape().kv_heads, entries);
  return lists;
}

/// Budgets of the layers from `first` on. The rule sees the others that the method acts on without entries, which tells
/// it how many they are.
std::vector<HeadBudgets> divide(const BudgetRule& rule, double share, std::span<const LayerScores> scores,
                                const LayerContext& first) {
  const auto layers = static_cast<size_t>(first.ranks());
  const LayerScores empty{.heads = std::vector<std::vector<float>>(scores.front().heads.size()),
                          .protection = scores.front().protection,
                          .share = share};
  std::vector<LayerScores> all(layers, empty);
  std::ranges::copy(scores, all.begin() + first.rank());
  const std::vector<HeadBudgets> budgets = rule.divide({.share = share, .layers = all});
  return {budgets.begin() + first.rank(), budgets.begin() + first.rank() + static_cast<int64_t>(scores.size())};
}

/// Whether a scorer can judge entries while decoding, without what only a prefill observes.
bool scores_while_decoding(const Scorer& scorer) {
  const Needs needs = scorer.needs();
  return scorer.score_width() > 0 ||
         !(needs.prompt_attention || needs.hidden || needs.output_projection || needs.future > 0 ||
           !needs.query_moments.empty() || !needs.taps.empty() || !needs.reconstructions.empty() ||
           !needs.restorations.empty() || !needs.statistics.empty());
}

void add(std::vector<HeadBudgets>& sums, const std::vector<HeadBudgets>& more) {
  if (sums.empty()) sums.resize(more.size());
  for (size_t layer = 0; layer < more.size(); ++layer) {
    sums[layer].resize(more[layer].size(), 0);
    for (size_t head = 0; head < more[layer].size(); ++head) sums[layer][head] += more[layer][head];
  }
}

}  // namespace

at::Tensor Scorer::remember_prompt(const LayerView& layer) const {
  return layer.group_sum(layer.prompt_attention()).unsqueeze(-1);
}

void Scorer::observe(const StepAttention& step) const {
  for (size_t q_head = 0; q_head < step.attention.size(); ++q_head) {
    const std::span<float> sums = step.entries->entry_scores(static_cast<int64_t>(q_head) / step.group());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += step.attention[q_head][i];
  }
}

DroppingMethod::DroppingMethod(std::string name, std::unique_ptr<Scorer> scorer)
    : PartMethod(std::move(scorer)),
      name_(std::move(name)),
      rule_(part_->default_rule()),
      decode_interval_(part_->default_interval()) {}

void DroppingMethod::parameters(ParameterVisitor& p) {
  if (part_->budgeted()) {
    budget_.parameters(p);
    p("threshold", threshold_).doc("in place of a budget: what scores below leaves, if nothing protects it");
    protection_.parameters(p);
    p("protect_prompt", protect_prompt_).doc("the prompt stays, and budgets are those of generated entries beside it");
    p("budget_rule", rule_).doc("how layers and heads share the budget: uniform, layers, pyramid, heads or global");
    p("prefill_chunk", prefill_chunk_).min(1).doc("compress the prompt in chunks of so many entries, each by itself");
    p("prefill_block", prefill_block_)
        .min(1)
        .doc("read the prompt in blocks of so many, back to the budget after each");
    p("decode_interval", decode_interval_).min(1).doc("while decoding, compress whenever so many entries were added");
    p("decode_tokens", decode_tokens_).min(1).doc("to so many entries a head; absent: to the prompt's budget");
    p("decode_keep", decode_keep_)
        .min(0)
        .max(1)
        .doc("to this fraction of all tokens so far, in place of decode_tokens");
    p("decode_scorer", decode_scorer_).doc("another dropping method, whose scores then count, in place of this one's");
    p("positions", positions_)
        .one_of({"orig", "renumber"})
        .doc("keys keep their rotation, or are turned to their places in the shortened cache");
    merging_.parameters(p);
  }
  part_->parameters(p);
}

void DroppingMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  part_->check(place, problems);
  if (!part_->budgeted()) return;
  const auto refuse = [&](const char* key, const char* what, const char* expected) {
    problems.push_back(describe({.place = place + key, .found = what, .expected = expected}));
  };
  if (!threshold_) {
    budget_.check(place, problems);
  } else if (budget_.keep || budget_.tokens || budget_.bytes) {
    refuse(".threshold", "a budget beside it", "one of the two");
  } else if (prefill_block_ || decode_tokens_ || decode_keep_ || rule_.name() != "uniform") {
    refuse(".threshold", "a setting that divides a budget beside it", "none");
  }
  if (protect_prompt_ && (prefill_block_ || prefill_chunk_ || rule_.name() != "uniform")) {
    refuse(".protect_prompt", "a setting beside it that says how the prompt is compressed", "none");
  }
  if (protect_prompt_ && !acts_while_decoding()) {
    refuse(".protect_prompt", "a method that evicts after the prompt alone", "\"decode_interval\" beside it");
  }
  if (prefill_block_ && prefill_chunk_) refuse(".prefill_block", "prefill_chunk beside it", "one of the two");
  if (prefill_block_ && rule_.name() != "uniform") {
    refuse(".prefill_block", "a budget rule that makes heads unequal", "the rule \"uniform\"");
  }
  if (prefill_block_ && part_->needs().hidden) {
    refuse(".prefill_block", "a scorer of hidden states", "one whose scores follow each head's own entries");
  }
  if (decode_interval_ && !scores_while_decoding(decode_scorer())) {
    refuse(".decode_interval", "a scorer that looks back at the whole prompt",
           "one of keys, values, the newest queries or numbers that travel with entries");
  }
  if (decode_scorer_ && !decode_interval_) refuse(".decode_scorer", "no decode_interval", "both");
  if (decode_scorer_ && decode_scorer_->score_width() > 0) {
    refuse(".decode_scorer", "a scorer that remembers numbers of the prompt", "one of keys, values and queries");
  }
  if (decode_tokens_ && !decode_interval_) refuse(".decode_tokens", "no decode_interval", "both");
  if (decode_keep_ && !decode_interval_) refuse(".decode_keep", "no decode_interval", "both");
  if (decode_keep_ && decode_tokens_) refuse(".decode_keep", "decode_tokens beside it", "one of the two");
}

Needs DroppingMethod::needs() const {
  Needs needs = part_->needs();
  // The last queries of every chunk vote, not those of the prompt alone.
  if ((prefill_chunk_ || prefill_block_) && needs.window > 0) needs.window = kWholePrompt;
  return needs;
}

void DroppingMethod::drop_others(LayerContext& layer, const KeptEntries& kept, DroppingState* state) const {
  EntrySegment& tail = layer.cache.tail();
  int64_t dropped = 0;
  int64_t next = 0;  // position of the next token
  for (size_t head = 0; head < kept.size(); ++head) {
    const int64_t held = tail.entries(static_cast<int64_t>(head));
    dropped += held - static_cast<int64_t>(kept[head].size());
    if (held > 0) next = std::max<int64_t>(next, tail.position(static_cast<int64_t>(head), held - 1) + 1);
  }
  layer.activity.entries_dropped += dropped;
  if (dropped == 0) return;
  if (merging_.active()) merging_.apply(tail, kept);
  tail.keep(kept);
  if (positions_ == "orig") return;
  KVARENA_ASSERT(layer.model != nullptr && state != nullptr, "renumbered positions need the model's rotation");
  if (const int64_t window = layer.model->rotation_window; window > 0 && next > window) {
    fail({.place = name_ + ".positions",
          .found = fmt::format("{} tokens under a rope scaling that turns keys by the length", next),
          .expected = fmt::format("at most {}, the original window", window),
          .action = "use \"orig\", or a model of another scaling"});
  }
  renumber(tail, layer.model->rotation_of(layer.layer), next, state->pre_rotation);
}

double DroppingMethod::share_of(const LayerContext& layer) const {
  if (!limited()) return static_cast<double>(layer.prompt_tokens);
  return budget_.share(layer.prompt_tokens, layer.cache.shape(), layer.budgeted());
}

void DroppingMethod::start_remembering(LayerContext& layer, const LayerView& view) const {
  const int64_t width = part_->score_width();
  const at::Tensor start = part_->remember_prompt(view).to(at::kFloat).contiguous();  // [kv_heads, n, width]
  KVARENA_ASSERT(start.numel() == view.kv_heads() * view.n() * width,
                 fmt::format("{} remembers [{}] of the prompt", name_, fmt::join(start.sizes(), ", ")));
  EntrySegment& tail = layer.cache.tail();
  tail.reserve_scores(width);
  for (int64_t head = 0; head < view.kv_heads(); ++head) {
    std::copy_n(start.data_ptr<float>() + head * view.n() * width, view.n() * width, tail.entry_scores(head).data());
  }
}

void DroppingMethod::compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const {
  if (unlimited() || layers.empty()) return;
  double share = share_of(layers.front());
  if (const int64_t added = part_->added_entries(seen.front()); added > 0)
    share = std::max(1.0, share - static_cast<double>(added));
  // Layer by layer where the rule allows, so that beside the full cache no more than one layer's state is held.
  const size_t group = compresses_by_layer() ? 1 : layers.size();
  for (size_t first = 0; first < layers.size(); first += group) {
    const auto own = layers.subspan(first, group);
    const auto own_seen = seen.subspan(first, group);
    for (size_t layer = 0; layer < group && remembers(); ++layer) {
      start_remembering(own[layer], LayerView(own[layer], &own_seen[layer]));
    }
    std::vector<HeadBudgets> budgets;
    const std::vector<KeptEntries> kept = protect_prompt_  ? whole_prompt(own, share, budgets)
                                          : prefill_chunk_ ? by_chunks(own, own_seen, share, budgets)
                                          : prefill_block_ ? by_blocks(own, own_seen, share, budgets)
                                                           : choose(own, own_seen, share, nullptr, budgets);
    for (size_t layer = 0; layer < group; ++layer) {
      LayerCache& cache = own[layer].cache;
      auto state = std::make_unique<DroppingState>(cache.ledger());
      drop_others(own[layer], kept[layer], state.get());
      part_->add_entries(own[layer], own_seen[layer]);
      if (!acts_while_decoding()) cache.tail().reserve_scores(0);
      if (!acts_while_decoding() || !(limited() || decode_interval_)) continue;
      state->capacities.assign(budgets[layer].begin(), budgets[layer].end());
      state->compressed = cache.tail().entries(0);
      cache.index = std::move(state);
    }
  }
}

std::vector<KeptEntries> DroppingMethod::choose(std::span<LayerContext> layers, std::span<const LayerObservations> seen,
                                                double share, Parts parts, std::vector<HeadBudgets>& budgets) const {
  std::vector<std::vector<LayerView>> views;
  std::vector<LayerScores> scores;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    views.push_back(views_of(layers[layer], &seen[layer]));
    if (parts != nullptr) views.back() = {views.back().front().part((*parts)[layer])};
    scores.push_back(score(*part_, views.back(), share));
  }
  budgets = divide(*rule_, share, scores, layers.front());
  std::vector<KeptEntries> kept;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    kept.push_back(best(*part_, views[layer], std::move(scores[layer]), budgets[layer]));
    if (parts == nullptr) continue;
    for (size_t head = 0; head < kept.back().size(); ++head) {
      for (int32_t& entry : kept.back()[head]) entry = (*parts)[layer][head][entry];
    }
  }
  return kept;
}

std::vector<KeptEntries> DroppingMethod::whole_prompt(std::span<LayerContext> layers, double share,
                                                      std::vector<HeadBudgets>& budgets) const {
  const int64_t n = layers.front().cache.tail().entries(0);
  const int64_t capacity = Division{.share = share, .layers = {}}.capacity();
  for (const LayerContext& layer : layers) budgets.emplace_back(layer.cache.shape().kv_heads, n + capacity);
  return everywhere(layers, range(0, n));
}

/// Each chunk keeps its own fraction, at least one entry a head (kvpress, ChunkPress). Queries of a chunk keep their
/// rotation, where ChunkPress over SnapKV turns them to the prompt's last positions.
std::vector<KeptEntries> DroppingMethod::by_chunks(std::span<LayerContext> layers,
                                                   std::span<const LayerObservations> seen, double share,
                                                   std::vector<HeadBudgets>& budgets) const {
  const int64_t n = layers.front().cache.tail().entries(0);
  std::vector<KeptEntries> kept = everywhere(layers, {});
  for (int64_t begin = 0; begin < n; begin += *prefill_chunk_) {
    const int64_t end = std::min(begin + *prefill_chunk_, n);
    const std::vector<KeptEntries> chunk = everywhere(layers, range(begin, end));
    std::vector<HeadBudgets> own;
    const double part = share * static_cast<double>(end - begin) / static_cast<double>(n);
    const auto chosen = choose(layers, seen, part, &chunk, own);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      for (size_t head = 0; head < kept[layer].size(); ++head) {
        kept[layer][head].insert(kept[layer][head].end(), chosen[layer][head].begin(), chosen[layer][head].end());
      }
    }
    add(budgets, own);
  }
  return kept;
}

/// The first entries fill the budget; then each block joins them and the best of both stay (kvpress, BlockPress).
std::vector<KeptEntries> DroppingMethod::by_blocks(std::span<LayerContext> layers,
                                                   std::span<const LayerObservations> seen, double share,
                                                   std::vector<HeadBudgets>& budgets) const {
  const int64_t n = layers.front().cache.tail().entries(0);
  const int64_t capacity = Division{.share = share, .layers = {}}.capacity();
  std::vector<KeptEntries> kept = everywhere(layers, range(0, std::min(n, capacity)));
  for (const KeptEntries& layer : kept) budgets.emplace_back(layer.size(), capacity);
  for (int64_t begin = capacity; begin < n; begin += *prefill_block_) {
    for (KeptEntries& layer : kept) {
      for (auto& head : layer) {
        for (int64_t i = begin; i < std::min(begin + *prefill_block_, n); ++i) head.push_back(static_cast<int32_t>(i));
      }
    }
    kept = choose(layers, seen, share, &kept, budgets);
  }
  return kept;
}

void DroppingMethod::observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const {
  if (unlimited() || !acts_while_decoding()) return;
  const LayerShape& shape = layer.cache.shape();
  if (auto* state = dynamic_cast<DroppingState*>(layer.cache.index.get()); decode_interval_ && state != nullptr) {
    const int64_t row = shape.q_heads * shape.head_dim;
    const auto most = static_cast<size_t>(std::min(decode_scorer().needs().window, *decode_interval_) * row);
    for (int64_t t = 0; t < queries.q_len && most > 0; ++t) {
      const float* q = queries.q + t * queries.q_stride;
      state->queries.insert(state->queries.end(), q, q + row);
    }
    if (state->queries.size() > most) state->queries.erase(state->queries.begin(), state->queries.end() - most);
  }
  const Needs needs = part_->needs();
  if (!(needs.step_attention || needs.step_hidden) || !remembers()) return;
  for (int64_t t = 0; t < queries.q_len; ++t) {
    StepAttention step{.entries = &layer.cache.tail(),
                       .attention = {},
                       .lse = {},
                       .layer = layer.layer,
                       .position = queries.position + t,
                       .prompt_tokens = layer.prompt_begin + layer.prompt_tokens,
                       .token = 0,
                       .unseen = queries.q_len - 1 - t,
                       .hidden = nullptr,
                       .model = layer.model};
    if (queries.tokens != nullptr) step.token = queries.tokens[t];
    if (needs.step_attention) attend(step, queries, t, lse);
    if (needs.step_hidden) step.hidden = queries.hidden + t * layer.model->hidden_size;
    part_->observe(step);
  }
}

void DroppingMethod::attend(StepAttention& step, const LayerQueries& queries, int64_t t, const float* lse) const {
  const EntrySegment& tail = *step.entries;
  const LayerShape& shape = tail.shape();
  int64_t longest = 0;
  for (int64_t head = 0; head < shape.kv_heads; ++head) longest = std::max(longest, tail.entries(head));
  std::vector<float> sums(static_cast<size_t>(shape.q_heads * longest));  // [q_heads, longest]
  const LayerQueries one{
      .q = queries.q + t * queries.q_stride, .q_len = 1, .q_stride = queries.q_stride, .position = step.position};
  add_probabilities(plan_of(tail, one), lse + t * shape.q_heads, sums.data(), longest);
  for (int64_t q_head = 0; q_head < shape.q_heads; ++q_head) {
    const int64_t n = tail.entries(q_head / shape.group());
    auto& row = step.attention.emplace_back(sums.begin() + q_head * longest, sums.begin() + q_head * longest + n);
    std::fill(row.end() - step.unseen, row.end(), 0.0F);
    step.lse.push_back(lse[t * shape.q_heads + q_head]);
  }
}

void DroppingMethod::after_append(LayerContext& layer) const {
  if (unlimited() || !acts_while_decoding()) return;
  if (decode_interval_) {
    compress_interval(layer);
    return;
  }
  const EntrySegment& tail = layer.cache.tail();
  const auto* state = dynamic_cast<const DroppingState*>(layer.cache.index.get());
  if (limited() && state == nullptr) return;  // the prompt was not compressed
  HeadBudgets budgets;
  bool full = !limited();  // a threshold or the scorer's own policy decides
  for (int64_t head = 0; head < layer.cache.shape().kv_heads; ++head) {
    budgets.push_back(limited() ? state->capacities[head] : tail.entries(head));
    full = full || tail.entries(head) > budgets.back();
  }
  if (full) evict(layer, nullptr, share_of(layer), std::move(budgets));
}

void DroppingMethod::evict(LayerContext& layer, const LayerObservations* newest, double share,
                           HeadBudgets budgets) const {
  const int64_t stay = protected_prompt(layer);
  std::vector<LayerView> views = views_of(layer, newest);
  for (LayerView& view : views) {
    if (view.n() <= stay) return;
    if (stay > 0) view = view.part({static_cast<size_t>(view.kv_heads()), range(stay, view.n())});
  }
  for (int64_t& budget : budgets) budget -= stay;
  KeptEntries kept = best(decode_scorer(), views, score(decode_scorer(), views, share), std::move(budgets));
  const std::vector<int32_t> prompt = range(0, stay);
  for (std::vector<int32_t>& head : kept) {
    for (int32_t& entry : head) entry += static_cast<int32_t>(stay);
    head.insert(head.begin(), prompt.begin(), prompt.end());
  }
  drop_others(layer, kept, dynamic_cast<DroppingState*>(layer.cache.index.get()));
}

std::optional<int64_t> DroppingMethod::decode_target(int64_t count) const {
  if (!decode_keep_) return decode_tokens_;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * *decode_keep_ + 1e-9));
}

/// kvpress's DecodingPress: every so many entries the whole cache is compressed by the newest queries' view of it.
/// Heads keep their shares of the budget.
void DroppingMethod::compress_interval(LayerContext& layer) const {
  auto* state = dynamic_cast<DroppingState*>(layer.cache.index.get());
  const EntrySegment& tail = layer.cache.tail();
  const LayerShape& shape = layer.cache.shape();
  if (state == nullptr || tail.entries(0) - state->compressed < *decode_interval_) return;
  LayerObservations newest;
  newest.window = static_cast<int64_t>(state->queries.size()) / (shape.q_heads * shape.head_dim);
  newest.window_queries.assign(state->queries.begin(), state->queries.end());
  const int64_t stay = protected_prompt(layer);
  const int64_t tokens = tail.position(0, tail.entries(0) - 1) + 1 - layer.prompt_begin;
  const std::optional<int64_t> target = decode_target(tokens - stay);
  const int64_t even = Division{.share = share_of(layer), .layers = {}}.capacity();
  HeadBudgets budgets;
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    int64_t budget = limited() ? state->capacities[head] : tail.entries(head);
    if (target) budget = stay + std::max<int64_t>(1, (budget - stay) * *target / even);
    budgets.push_back(budget);
  }
  evict(layer, &newest, target ? static_cast<double>(*target) : share_of(layer), std::move(budgets));
  state->compressed = tail.entries(0);
  state->queries.clear();
}

LayerScores DroppingMethod::score(const Scorer& scorer, const std::vector<LayerView>& views, double share) const {
  const int64_t capacity = Division{.share = share, .layers = {}}.capacity();
  const Protection own = scorer.protect(threshold_ ? kNoBudget : capacity);
  LayerScores result{.heads = {}, .protection = protection_.beside(own), .share = share};
  for (const LayerView& view : views) {
    const at::Tensor scores = scorer.score(view.under(share)).to(at::kFloat).contiguous();
    if (scores.dim() != 2 || scores.size(0) != view.kv_heads() || scores.size(1) != view.n()) {
      fail({.place = fmt::format("{}: layer {}", name_, view.layer()),
            .found = fmt::format("scores of shape [{}]", fmt::join(scores.sizes(), ", ")),
            .expected = fmt::format("[{}, {}], one for every entry of every kv head", view.kv_heads(), view.n()),
            .action = fmt::format("what score() of {} returns is at fault, not kvarena", name_)});
    }
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      const float* row = scores.data_ptr<float>() + head * view.n();
      result.heads.emplace_back(row, row + view.n());
      const auto bad = std::ranges::find_if_not(result.heads.back(), [](float score) { return std::isfinite(score); });
      if (bad == result.heads.back().end()) continue;
      fail(
          {.place = fmt::format("{}: layer {}, kv head {}, entry {}", name_, view.layer(), view.first_head() + head,
                                bad - result.heads.back().begin()),
           .found = std::isnan(*bad) ? "a score that is not a number" : "an infinite score",
           .expected = "finite scores",
           .action = "look into score(); if its arithmetic is sound, the model's keys or values hold NaN or infinity"});
    }
  }
  return result;
}

KeptEntries DroppingMethod::best(const Scorer& scorer, const std::vector<LayerView>& views, LayerScores scores,
                                 HeadBudgets budgets) const {
  for (const LayerView& view : views) {
    const int64_t first = view.first_head();
    const int64_t last = first + view.kv_heads();
    LayerScores part{.heads = {scores.heads.begin() + first, scores.heads.begin() + last},
                     .protection = scores.protection,
                     .share = scores.share};
    HeadBudgets part_budgets(budgets.begin() + first, budgets.begin() + last);
    scorer.refine(view, part, part_budgets);
    std::ranges::move(part.heads, scores.heads.begin() + first);
    std::ranges::copy(part_budgets, budgets.begin() + first);
  }
  KeptEntries kept;
  for (size_t head = 0; head < budgets.size(); ++head) {
    const std::vector<float>& row = scores.heads[head];
    const Protection protection = protection_.beside(scorer.protect(threshold_ ? kNoBudget : budgets[head]));
    if (threshold_) {
      const int64_t first = std::min(protection.sinks, std::ssize(row));
      const int64_t last = std::max(first, std::ssize(row) - protection.recent);
      budgets[head] -= std::count_if(row.begin() + first, row.begin() + last, [&](float s) { return s < *threshold_; });
    }
    kept.push_back(select_best(row, budgets[head], protection));
  }
  return kept;
}

}  // namespace kvarena
