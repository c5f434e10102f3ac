#include "harness/engine/session/reconstruction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "kernels/common/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {
namespace {

/// Prompt entries [begin, end) and what is fed to have them repeated.
struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int32_t> fed;
};

/// How many of the prompt's first tokens are not repeated: what the chat template wrote.
int64_t prefix_length(const Prefill& prompt, const Reconstruction& what) {
  if (what.bare) return 0;
  const std::vector<int32_t>& head = prompt.model->text.before_user;
  const bool templated =
      head.size() < prompt.tokens.size() && std::equal(head.begin(), head.end(), prompt.tokens.begin());
  return templated ? static_cast<int64_t>(head.size()) : 0;
}

std::vector<Chunk> cut(const Prefill& prompt, const Reconstruction& what) {
  const TextFacts& text = prompt.model->text;
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  const int64_t prefix = prefix_length(prompt, what);
  std::vector<Chunk> chunks;
  for (int64_t begin = prefix; begin < n; begin += std::min(what.chunk, n - begin)) {
    Chunk chunk{.begin = begin, .end = begin + std::min(what.chunk, n - begin)};
    const bool is_first = begin == prefix;
    if (text.encode && !what.bare) chunk.fed = text.encode(is_first ? what.first : what.next);
    if (!is_first) {
      const auto here = prompt.tokens.begin() + begin;
      chunk.fed.insert(chunk.fed.end(), here - std::min(what.tail, begin - prefix), here);
    }
    if (!what.bare) chunk.fed.insert(chunk.fed.end(), text.after_user.begin(), text.after_user.end());
    chunk.fed.insert(chunk.fed.end(), prompt.tokens.begin() + chunk.begin, prompt.tokens.begin() + chunk.end);
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

/// |W_O[h] v| of values [n, head_dim] for each query head of the group: [group, n], through the Gram matrix of W_O[h].
at::Tensor output_norms(const at::Tensor& output, int64_t first_head, int64_t group, const at::Tensor& values) {
  const int64_t d = values.size(1);
  std::vector<at::Tensor> norms;
  for (int64_t h = first_head; h < first_head + group; ++h) {
    const at::Tensor w = output.narrow(1, h * d, d);
    norms.push_back(at::matmul(values, w.t().matmul(w)).mul(values).sum(1).clamp_min(0).sqrt());
  }
  return at::stack(norms);
}

/// Keeps the largest probability that a repetition puts on each entry of its chunk.
class ReconstructionObserver final : public AttentionHooks {
 public:
  ReconstructionObserver(Transformer& model, std::vector<ReconstructionScores*> scores, int64_t prompt_tokens)
      : model_(&model), scores_(std::move(scores)), n_(prompt_tokens) {}

  void watch(const Chunk& chunk) { chunk_ = &chunk; }
  [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
  [[nodiscard]] bool wants_hidden() const override { return scores_[0]->of.output_norm; }

  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* /*lse*/) override {
    if (scores_[layer]->scores.empty()) return;
    const LayerShape& shape = cache.shape();
    const Seen seen = seen_of(cache.tail().entries(0));
    std::vector<float> of_queries(static_cast<size_t>(queries.q_len), 1.0F);
    std::vector<float> of_entries(static_cast<size_t>(shape.q_heads * seen.chunk), 1.0F);
    if (wants_hidden()) weigh(layer, cache.tail(), queries, of_queries, of_entries);
    std::vector<kernels::PackedMatrix> keys;
    for (int64_t head = 0; head < shape.kv_heads; ++head) keys.push_back(keys_of(cache.tail(), head, seen));
    kernels::parallel_for(shape.q_heads, [&](int64_t head) {
      keep_largest(queries, head, shape, keys[head / shape.group()], seen, of_queries.data(),
                   &of_entries[head * seen.chunk], &scores_[layer]->scores[head * n_ + chunk_->begin]);
    });
  }

 private:
  /// Entries under a repetition's softmax, in this order.
  struct Seen {
    int64_t sinks, chunk, own;  // own: of the repetition so far
    [[nodiscard]] int64_t all() const { return sinks + chunk + own; }
  };
  [[nodiscard]] Seen seen_of(int64_t held) const {
    const ReconstructionScores& scores = *scores_[0];
    return {.sinks = std::min(scores.of.sinks.value_or(scores.prefix), chunk_->begin),
            .chunk = chunk_->end - chunk_->begin,
            .own = held - n_};
  }

  [[nodiscard]] kernels::PackedMatrix keys_of(const EntrySegment& entries, int64_t head, const Seen& seen) const {
    const int64_t d = entries.shape().head_dim;
    std::vector<float> rows(static_cast<size_t>(seen.all() * d));
    entries.read_some(head, 0, seen.sinks, rows.data(), nullptr, d);
    entries.read_some(head, chunk_->begin, seen.chunk, &rows[seen.sinks * d], nullptr, d);
    entries.read_some(head, n_, seen.own, &rows[(seen.sinks + seen.chunk) * d], nullptr, d);
    return kernels::pack_weights(rows.data(), seen.all(), d, kernels::DType::f32);
  }

  /// Factors of probabilities: of each query, 1 / |its hidden state|, and of each query head and entry of the chunk,
  /// |W_O v|.
  void weigh(int64_t layer, const EntrySegment& entries, const LayerQueries& queries, std::vector<float>& of_queries,
             std::vector<float>& of_entries) const {
    const LayerShape& shape = entries.shape();
    const int64_t hidden_size = model_->config().hidden_size, size = chunk_->end - chunk_->begin;
    const auto hidden = at::from_blob(const_cast<float*>(queries.hidden), {queries.q_len, hidden_size});
    at::from_blob(of_queries.data(), {queries.q_len}).copy_(hidden.norm(2, 1).reciprocal());
    std::vector<float> weights = model_->output_projection(layer);
    const at::Tensor output = at::from_blob(weights.data(), {hidden_size, shape.q_heads * shape.head_dim});
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const at::Tensor values = at::empty({size, shape.head_dim});
      entries.read_some(head, chunk_->begin, size, nullptr, values.data_ptr<float>(), shape.head_dim);
      const int64_t first = head * shape.group();
      at::from_blob(&of_entries[first * size], {shape.group(), size})
          .copy_(output_norms(output, first, shape.group(), values));
    }
  }

  /// Raises `largest` [chunk] to what the queries of a head put on the chunk's entries.
  void keep_largest(const LayerQueries& queries, int64_t head, const LayerShape& shape,
                    const kernels::PackedMatrix& keys, const Seen& seen, const float* of_queries,
                    const float* of_entries, float* largest) const {
    constexpr int64_t kRows = 24;  // scores of so many stay in the second-level cache
    static thread_local kernels::Scratch<float> memory;
    float* const scores = memory.get(kRows * seen.all());
    const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    for (int64_t first = 0; first < queries.q_len; first += kRows) {
      const int64_t rows = std::min(kRows, queries.q_len - first);
      kernels::matmul({.x = queries.q + first * queries.q_stride + head * shape.head_dim,
                       .m = rows,
                       .x_stride = queries.q_stride,
                       .w = &keys,
                       .y = scores,
                       .y_stride = seen.all()});
      for (int64_t row = first; row < first + rows; ++row) {
        // The newest q_len own entries are the queries' own: none sees those after itself.
        float* const p = scores + (row - first) * seen.all();
        kernels::softmax(p, 1, seen.all() - (queries.q_len - 1 - row), seen.all(), scale);
        for (int64_t i = 0; i < seen.chunk; ++i)
          largest[i] = std::max(largest[i], p[seen.sinks + i] * of_queries[row] * of_entries[i]);
      }
    }
  }

  Transformer* model_;
  std::vector<ReconstructionScores*> scores_;  // [layers]
  int64_t n_;                                  // prompt entries
  const Chunk* chunk_ = nullptr;
};

void check_room(const Transformer& model, const Prefill& prompt, const std::vector<Chunk>& chunks) {
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  int64_t longest = 0;
  for (const Chunk& chunk : chunks) longest = std::max(longest, static_cast<int64_t>(chunk.fed.size()));
  if (n + longest <= model.config().max_position) return;
  fail({.place = "reconstruction of the prompt",
        .found = fmt::format("{} prompt tokens and {} more to repeat a chunk of them", n, longest),
        .expected = fmt::format("at most {} together, the model's window", model.config().max_position),
        .action = "use a smaller \"chunk\", shorter prompts, or a model with a larger window"});
}

}  // namespace

void observe_reconstruction(Transformer& model, Prefill& prompt, const Reconstruction& what, int64_t piece) {
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  const int64_t prefix = prefix_length(prompt, what);
  const std::vector<Chunk> chunks = cut(prompt, what);
  check_room(model, prompt, chunks);
  std::vector<ReconstructionScores*> scores;
  for (LayerObservations& seen : prompt.observations) {
    seen.reconstructions.push_back({.of = what, .prefix = prefix});
    if (seen.entries > 0)
      seen.reconstructions.back().scores.assign(static_cast<size_t>(model.config().q_heads * n), 0.0F);
    scores.push_back(&seen.reconstructions.back());
  }
  ReconstructionObserver observer(model, std::move(scores), n);
  KvCache cache = prompt.cache.clone();
  cache.hold_states();
  for (const Chunk& chunk : chunks) {
    observer.watch(chunk);
    const std::span<const int32_t> fed = chunk.fed;
    for (size_t done = 0; done < fed.size(); done += static_cast<size_t>(piece)) {
      const size_t count = std::min(static_cast<size_t>(piece), fed.size() - done);
      const SequencePass pass{
          .tokens = fed.subspan(done, count), .cache = &cache, .hooks = &observer, .logits = LogitsRows::none};
      (void)model.forward({&pass, 1});
    }
    cache.truncate(n);
  }
}

void observe_output_projection(Transformer& model, Prefill& prompt) {
  for (size_t layer = 0; layer < prompt.observations.size(); ++layer) {
    prompt.observations[layer].output_projection = [&model, layer] {
      return model.output_projection(static_cast<int64_t>(layer));
    };
  }
}

}  // namespace kvarena
