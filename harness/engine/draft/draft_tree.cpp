#include "harness/engine/draft/draft_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvarena {
namespace {

/// Places of the `count` largest, largest first, the first of equal ones before.
std::vector<int64_t> best(std::span<const double> values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(count)));
  return order;
}

/// Logarithms of the probabilities that logits stand for.
std::vector<double> log_softmax(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  std::vector<double> result;
  for (const float x : logits) result.push_back(static_cast<double>(x) - largest - std::log(sum));
  return result;
}

class Growth {
 public:
  Growth(const DraftHead& head, const ModelFacts& facts, KvCache& cache, const TreeShape& shape)
      : head_(&head), facts_(&facts), cache_(&cache), shape_(shape), committed_(cache.length) {}

  DraftTree grow(std::span<const float> row) {
    std::vector<int32_t> committed(static_cast<size_t>(committed_));
    std::iota(committed.begin(), committed.end(), 0);
    branch(-1, 0, row);
    std::vector<Beam> beams;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      beams.push_back({.node = static_cast<int32_t>(i), .row = {row.begin(), row.end()}, .entries = committed});
    }
    for (int64_t depth = 1; depth < shape_.depth; ++depth) beams = next(std::move(beams), depth);
    cache_->truncate(committed_);
    return chosen();
  }

 private:
  /// A token that was seen.
  struct Node {
    int64_t draft_id = 0;
    int32_t parent = -1;
    double score = 0;  // logarithm of its path's probability
  };
  /// A path that goes on: its last node, the head's row before that, and the entries of the head's cache on it.
  struct Beam {
    int32_t node = 0;
    std::vector<float> row;  // [hidden_size]
    std::vector<int32_t> entries;
  };

  /// The likeliest tokens behind a path.
  void branch(int32_t parent, double score, std::span<const float> row) {
    std::vector<float> logits(static_cast<size_t>(head_->draft_vocab()));
    head_->predict(row.data(), 1, logits.data());
    const std::vector<double> likelihood = log_softmax(logits);
    for (const int64_t id : best(likelihood, shape_.beams)) {
      nodes_.push_back({.draft_id = id, .parent = parent, .score = score + likelihood[id]});
    }
  }

  /// Runs the head over what stands last in each beam.
  void advance(std::vector<Beam>& beams, int64_t depth) {
    const int64_t hidden = head_->hidden_size();
    const auto count = static_cast<int64_t>(beams.size());
    std::vector<int32_t> tokens;
    std::vector<float> rows;
    std::vector<std::vector<int32_t>> seen;
    for (Beam& beam : beams) {
      tokens.push_back(head_->token(nodes_[beam.node].draft_id));
      rows.insert(rows.end(), beam.row.begin(), beam.row.end());
      beam.entries.push_back(static_cast<int32_t>(cache_->length + static_cast<int64_t>(seen.size())));
      seen.push_back(beam.entries);
    }
    std::vector<float> embeddings(rows.size());
    facts_->embed(tokens, embeddings.data());
    std::vector<float> out(rows.size());
    head_->run({.embeddings = embeddings.data(),
                .hidden = rows.data(),
                .count = count,
                .position = committed_ + depth - 1,
                .seen = std::move(seen)},
               cache_->layers.front(), out.data());
    cache_->length += count;
    for (int64_t i = 0; i < count; ++i) beams[i].row.assign(&out[i * hidden], &out[i * hidden] + hidden);
  }

  std::vector<Beam> next(std::vector<Beam> beams, int64_t depth) {
    advance(beams, depth);
    const size_t born = nodes_.size();
    std::vector<const Beam*> beam_of;  // of each new node
    for (const Beam& beam : beams) {
      branch(beam.node, nodes_[beam.node].score, beam.row);
      beam_of.resize(nodes_.size() - born, &beam);
    }
    std::vector<double> scores;
    for (size_t i = born; i < nodes_.size(); ++i) scores.push_back(nodes_[i].score);
    std::vector<Beam> best_beams;
    for (const int64_t i : best(scores, shape_.beams)) {
      best_beams.push_back({.node = static_cast<int32_t>(born) + static_cast<int32_t>(i),
                            .row = beam_of[i]->row,
                            .entries = beam_of[i]->entries});
    }
    return best_beams;
  }

  [[nodiscard]] DraftTree chosen() const {
    std::vector<double> scores;
    for (const Node& node : nodes_) scores.push_back(node.score);
    std::vector<int64_t> order = best(scores, shape_.tokens);
    std::ranges::sort(order);
    DraftTree tree;
    std::vector<int32_t> place(nodes_.size(), -1);  // of a node in the tree
    for (const int64_t node : order) {
      place[node] = static_cast<int32_t>(tree.tokens.size());
      tree.tokens.push_back(head_->token(nodes_[node].draft_id));
      // A path is never likelier than its beginning, so that this one is in the tree.
      tree.parents.push_back(nodes_[node].parent < 0 ? -1 : place[nodes_[node].parent]);
    }
    return tree;
  }

  const DraftHead* head_;
  const ModelFacts* facts_;
  KvCache* cache_;
  TreeShape shape_;
  int64_t committed_;  // entries of the cache
  std::vector<Node> nodes_;
};

}  // namespace

DraftTree grow_tree(const DraftHead& head, const ModelFacts& facts, KvCache& cache, std::span<const float> row,
                    const TreeShape& shape) {
  return Growth(head, facts, cache, shape).grow(row);
}

}  // namespace kvarena
