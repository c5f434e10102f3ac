#include "harness/engine/draft/head_draft.h"

#include <algorithm>
#include <limits>

namespace kvarena {
namespace {

constexpr int64_t kChunk = 512;  // tokens that the head reads at once

std::shared_ptr<const DraftHead> read_head(const Transformer& model, const ModelFacts& facts,
                                           const DraftingHead& asked) {
  const auto weights = facts.fitted(asked.weights);
  require_taps_of(*weights, model.config().cached_layers());
  return std::make_shared<const DraftHead>(*weights, facts, asked.yarn, model.options().cache);
}

/// Whether a pass may hold a tree of tokens.
bool takes_trees(const Transformer& model) {
  if (!model.config().recurrent_layers.empty()) return false;
  for (int64_t layer = 0; layer < model.config().cached_layers(); ++layer) {
    if (model.layer_shape(layer).window > 0) return false;
  }
  return true;
}

}  // namespace

HeadDraft::HeadDraft(const Transformer& model, const Prefill& prompt, const DraftingHead& head, DraftSampler sampler)
    : facts_(prompt.model),
      head_(read_head(model, *facts_, head)),
      sampler_(sampler),
      beams_(takes_trees(model) ? head.beams : 1),
      tree_tokens_(head.tree_tokens),
      cache_(1, head_->shape()),
      taps_(model.config().cached_layers(), cache_.ledger) {
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  const int64_t hidden = head_->hidden_size();
  pending_.resize(static_cast<size_t>(n * hidden));
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t count = std::min(kChunk, n - first);
    taps_.features.take(prompt.observations, first, count, hidden);
    head_->fuse(taps_.features.rows.data(), count, &pending_[first * hidden]);
  }
}

void HeadDraft::run(std::span<const int32_t> tokens, const float* hidden, float* out) {
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<float> embeddings(static_cast<size_t>(count * head_->hidden_size()));
  facts_->embed(tokens, embeddings.data());
  head_->run({.embeddings = embeddings.data(), .hidden = hidden, .count = count, .position = cache_.length, .seen = {}},
             cache_.layers.front(), out);
  cache_.length += count;
}

std::vector<float> HeadDraft::catch_up(std::span<const int32_t> history) {
  const int64_t hidden = head_->hidden_size();
  const int64_t count = static_cast<int64_t>(pending_.size()) / hidden;
  std::vector<float> out;
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t part = std::min(kChunk, count - done);
    out.resize(static_cast<size_t>(part * hidden));
    run(history.subspan(static_cast<size_t>(cache_.length + 1), static_cast<size_t>(part)), &pending_[done * hidden],
        out.data());
  }
  pending_.clear();
  out.erase(out.begin(), out.end() - hidden);
  return out;
}

std::vector<float> HeadDraft::predict(const std::vector<float>& out) const {
  std::vector<float> known(static_cast<size_t>(head_->draft_vocab()));
  head_->predict(out.data(), 1, known.data());
  std::vector<float> logits(static_cast<size_t>(facts_->vocab_size), -std::numeric_limits<float>::infinity());
  for (size_t id = 0; id < known.size(); ++id) logits[head_->token(static_cast<int64_t>(id))] = known[id];
  return logits;
}

void HeadDraft::begin(const DraftRound& round) {
  drafts_.clear();
  parents_.clear();
  if (round.limit == 0) return;
  std::vector<float> row = catch_up(round.history);
  const int64_t committed = cache_.length;
  if (beams_ > 1 && round.room > 0) {
    draft_tree(row, {.depth = round.limit, .beams = beams_, .tokens = std::min(tree_tokens_, round.room)});
  } else {
    draft_chain(std::move(row), round);
  }
  cache_.truncate(committed);
}

void HeadDraft::draft_chain(std::vector<float> row, const DraftRound& round) {
  const auto position = static_cast<int64_t>(round.history.size());  // of the first drafted token
  while (true) {
    drafts_.push_back(sampler_.draw(predict(row), position + static_cast<int64_t>(drafts_.size())));
    if (static_cast<int64_t>(drafts_.size()) == round.limit) return;
    const std::vector<float> before = std::move(row);
    row.resize(before.size());
    run({&drafts_.back().token, 1}, before.data(), row.data());
  }
}

void HeadDraft::draft_tree(std::span<const float> row, const TreeShape& shape) {
  DraftTree tree = grow_tree(*head_, *facts_, cache_, row, shape);
  for (const int32_t token : tree.tokens) drafts_.push_back({.token = token, .distribution = {}});
  parents_ = std::move(tree.parents);
}

void HeadDraft::commit(const Verified& verified) {
  const int64_t hidden = head_->hidden_size();
  // Whatever was committed for a time only (by a drafter that this one drafts for) goes.
  if (cache_.length > verified.before) cache_.truncate(verified.before);
  pending_.resize(static_cast<size_t>((verified.before - cache_.length) * hidden));
  for (const int32_t row : verified.rows) {
    pending_.resize(pending_.size() + static_cast<size_t>(hidden));
    head_->fuse(&taps_.features.rows[row * head_->feature_size()], 1, pending_.data() + pending_.size() - hidden);
  }
}

}  // namespace kvarena
