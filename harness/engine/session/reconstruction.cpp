#include "harness/engine/session/reconstruction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

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
    at::Tensor per_query = at::ones({queries.q_len});
    at::Tensor output;  // [hidden_size, q_heads * head_dim]
    if (wants_hidden()) {
      const int64_t hidden_size = model_->config().hidden_size;
      per_query =
          at::from_blob(const_cast<float*>(queries.hidden), {queries.q_len, hidden_size}).norm(2, 1).reciprocal();
      std::vector<float> weights = model_->output_projection(layer);
      output = at::from_blob(weights.data(), {hidden_size, shape.q_heads * shape.head_dim}).clone();
    }
    const at::Tensor q = at::from_blob(const_cast<float*>(queries.q), {queries.q_len, shape.q_heads, shape.head_dim},
                                       {queries.q_stride, shape.head_dim, 1}, at::TensorOptions(at::kFloat));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t held = cache.tail().entries(head);
      at::Tensor keys = at::empty({held, shape.head_dim});
      at::Tensor values = at::empty({wants_hidden() ? held : 0, shape.head_dim});
      cache.tail().read(head, keys.data_ptr<float>(), wants_hidden() ? values.data_ptr<float>() : nullptr);
      at::Tensor mass = probabilities(q.narrow(1, head * shape.group(), shape.group()), keys);  // [group, q_len, chunk]
      if (wants_hidden()) {
        const at::Tensor chunk = values.narrow(0, chunk_->begin, chunk_->end - chunk_->begin);
        mass = mass * per_query.view({1, -1, 1}) *
               output_norms(output, head * shape.group(), shape.group(), chunk).unsqueeze(1);
      }
      keep_largest(*scores_[layer], head * shape.group(), mass);
    }
  }

 private:
  /// Softmax over [sinks, chunk, the repetition so far]; the columns of the chunk.
  [[nodiscard]] at::Tensor probabilities(const at::Tensor& q, const at::Tensor& keys) const {
    const ReconstructionScores& scores = *scores_[0];
    const int64_t sinks = std::min(scores.of.sinks.value_or(scores.prefix), chunk_->begin);
    const int64_t size = chunk_->end - chunk_->begin;
    const int64_t own = keys.size(0) - n_;
    const at::Tensor seen =
        at::cat({keys.narrow(0, 0, sinks), keys.narrow(0, chunk_->begin, size), keys.narrow(0, n_, own)});
    const double scale = 1.0 / std::sqrt(static_cast<double>(keys.size(1)));
    at::Tensor logits = at::matmul(q.transpose(0, 1), seen.t()).mul_(scale);  // [group, q_len, sinks + size + own]
    // The newest q_len own entries are the queries' own: none sees those after itself.
    const int64_t q_len = q.size(0);
    const at::Tensor later = at::ones({q_len, q_len}, at::kBool).triu(1);
    logits.narrow(2, sinks + size + own - q_len, q_len).masked_fill_(later, -std::numeric_limits<float>::infinity());
    return at::softmax(logits, 2).narrow(2, sinks, size);
  }

  void keep_largest(ReconstructionScores& scores, int64_t first_head, const at::Tensor& mass) const {
    const at::Tensor largest = mass.amax(1);  // [group, chunk]
    float* const rows = scores.scores.data() + first_head * n_ + chunk_->begin;
    at::Tensor kept = at::from_blob(rows, largest.sizes(), {n_, 1});
    at::maximum_out(kept, kept, largest);
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
