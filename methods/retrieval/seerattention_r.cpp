#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/method/entry_scores.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/head_lists.h"
#include "harness/method/layer_view.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * weight;
}

/// Largest, smallest and mean numbers of each block of keys [kv_heads, n, head_dim]: [kv_heads, blocks, 3 head_dim].
at::Tensor pooled(const at::Tensor& keys, int64_t block) {
  std::vector<at::Tensor> blocks;
  for (const at::Tensor& some : keys.split(block, 1))
    blocks.push_back(at::cat({some.amax(1), some.amin(1), some.mean(1)}, -1));
  return at::stack(blocks, 1);
}

/// A layer's gate: maps of queries and of pooled keys, both before rotation, to rows whose products score blocks.
///   q[j] = rotated(norm(sum over query heads g of q_g W_q[j,g])),  k[j,b] = rotated(norm(pooled keys of b W_k[j]))
struct SeerGate {
  at::Tensor q_weight;        // [kv_heads, group, head_dim, head_dim]
  at::Tensor k_weight;        // [kv_heads, 3 head_dim, head_dim]
  at::Tensor q_norm, k_norm;  // [head_dim], undefined where there are none
  Rotation rotation;

  /// Queries [q_heads, n, head_dim] at positions [n] -> [kv_heads, n, head_dim].
  [[nodiscard]] at::Tensor queries(const at::Tensor& q, const at::Tensor& positions) const {
    const at::Tensor groups = q.view({q_weight.size(0), q_weight.size(1), q.size(1), q.size(2)});
    const at::Tensor mapped = at::matmul(groups, q_weight).sum(1);
    return rotated(rotation, q_norm.defined() ? normed(mapped, q_norm) : mapped, positions);
  }
  /// Pooled blocks [kv_heads, blocks, 3 head_dim] at positions [blocks] -> [kv_heads, blocks, head_dim].
  [[nodiscard]] at::Tensor blocks(const at::Tensor& pools, const at::Tensor& positions) const {
    const at::Tensor mapped = at::matmul(pools, k_weight);
    return rotated(rotation, k_norm.defined() ? normed(mapped, k_norm) : mapped, positions);
  }
};

constexpr const char* kGate = "model.layers.{}.self_attn.attn_gate.attngate_{}.weight";

SeerGate gate_of(const FittedWeights& weights, int64_t layer, const LayerShape& shape, const Rotation& rotation) {
  const int64_t d = shape.head_dim;
  const auto read = [&](const char* name, const std::vector<int64_t>& sizes) {
    return tensor_of(weights.at(fmt::format(fmt::runtime(kGate), layer, name), sizes)).clone();
  };
  SeerGate gate{.q_weight = read("linear_q", {shape.kv_heads, shape.group(), d, d}),
                .k_weight = read("linear_k", {shape.kv_heads, 3 * d, d}),
                .q_norm = {},
                .k_norm = {},
                .rotation = rotation};
  if (!weights.has(fmt::format(fmt::runtime(kGate), layer, "qnorm"))) return gate;
  gate.q_norm = read("qnorm", {d});
  gate.k_norm = read("knorm", {d});
  return gate;
}

/// Distils attention into gates by the authors' loss: KL of the softmax of a gate's scores to each block's largest
/// probability, the largest of the group, brought to sum 1. Queries are of the text's second half. Steps are single
/// texts, theirs 16 of up to 32k tokens.
class GateFitter final : public Fitter {
 public:
  explicit GateFitter(int64_t block) : block_(block) {}

  FittedRequest artifact() const override { return {.method = "seerattention_r", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.window = kQueries}; }
  int64_t sample_tokens() const override { return 1024; }
  bool half() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const int64_t n = layer.n(), first = n - std::min(n / 2, kQueries);
    const at::Tensor rows = draw_rows(n - first, kRows, draws) + first, places = rows.to(at::kDouble);
    const at::Tensor queries = layer.queries(kQueries);
    const at::Tensor q = queries.index_select(1, rows - (n - queries.size(1)));
    const at::Tensor keys = layer.keys(), positions = at::arange(n, at::kDouble);
    const at::Tensor later = at::arange(n) > rows.unsqueeze(1);
    const at::Tensor scores = at::matmul(q, keys.repeat_interleave(layer.group(), 0).transpose(1, 2));
    const at::Tensor shares =
        at::softmax((scores / std::sqrt(static_cast<double>(layer.head_dim()))).masked_fill(later, -INFINITY), -1);
    std::vector<at::Tensor> largest;
    for (const at::Tensor& some : shares.split(block_, -1)) largest.push_back(some.amax(-1));
    const at::Tensor target = at::stack(largest, -1).view({layer.kv_heads(), layer.group(), rows.size(0), -1}).amax(1);
    return {{"queries", weight_of(unrotated(rotation, q, places))},
            {"positions", weight_of(places)},
            {"pools", weight_of(pooled(unrotated(rotation, keys, positions).to(at::kFloat), block_))},
            {"target", weight_of(target / target.sum(-1, /*keepdim=*/true))},
            {"inverse", weight_of(at::tensor(rotation.inverse))},
            {"magnitude", {.shape = {1}, .values = {static_cast<float>(rotation.magnitude)}}}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const int64_t heads = records.front().at("pools").shape[0], d = records.front().at("queries").shape[2];
    const int64_t group = records.front().at("queries").shape[0] / heads;
    // Bounds are those of Glorot and Bengio 2010 as torch counts the inputs and outputs of such tensors.
    const double q_bound = std::sqrt(6.0 / static_cast<double>((group + heads) * d * d));
    const double k_bound = std::sqrt(6.0 / static_cast<double>((3 * d + heads) * d));
    const int64_t first = int64_t{1} << 32;  // draws before it shuffle
    std::vector<at::Tensor> p = {draw_uniform({heads, group, d, d}, q_bound, draws, first),
                                 draw_uniform({heads, 3 * d, d}, k_bound, draws, 2 * first), at::ones({d}),
                                 at::ones({d})};
    Rotation rotation;
    const std::vector<float>& inverse = records.front().at("inverse").values;
    rotation.inverse.assign(inverse.begin(), inverse.end());
    rotation.magnitude = records.front().at("magnitude").values.front();
    descend(p, std::ssize(records), {.batch = 1, .learning_rate = 1e-3, .weight_decay = 0}, draws,
            [&](const at::Tensor& rows) {
              return loss(records[static_cast<size_t>(rows.item<int64_t>())], {p[0], p[1], p[2], p[3], rotation});
            });
    return {{"linear_q", weight_of(p[0])},
            {"linear_k", weight_of(p[1])},
            {"qnorm", weight_of(p[2])},
            {"knorm", weight_of(p[3])}};
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override {
    FittedTensors all;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      for (const auto& [name, tensor] : layers[layer]) all[fmt::format(fmt::runtime(kGate), layer, name)] = tensor;
    }
    return all;
  }

 private:
  static constexpr int64_t kQueries = 512, kRows = 64;

  [[nodiscard]] at::Tensor loss(const FittedTensors& record, const SeerGate& gate) const {
    const at::Tensor positions = tensor_of(record.at("positions")).to(at::kDouble),
                     pools = tensor_of(record.at("pools"));
    const at::Tensor begins = at::arange(pools.size(1), at::kDouble) * block_;
    const at::Tensor q = gate.queries(tensor_of(record.at("queries")), positions);
    const at::Tensor scores =
        at::matmul(q, gate.blocks(pools, begins).transpose(1, 2)) / std::sqrt(static_cast<double>(pools.size(2)) / 3);
    const at::Tensor later = begins > positions.unsqueeze(1);
    return at::kl_div(at::log_softmax(scores.masked_fill(later, -1e20), -1).to(at::kFloat),
                      tensor_of(record.at("target")), at::Reduction::Mean);
  }

  int64_t block_;
};

/// Rows of whole blocks under a layer's gate.
struct GatedBlocks final : public LayerIndex {
  explicit GatedBlocks(HeadLists<float> rows) : heads(std::move(rows)) {}

  std::shared_ptr<const SeerGate> gate;  // the method's: not counted
  int64_t prompt = 0;                    // entries
  HeadLists<float> heads;                // [kv_heads] of [blocks, head_dim]

  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<GatedBlocks>(HeadLists(heads, ledger));
    copy->gate = gate;
    copy->prompt = prompt;
    return copy;
  }
};

/// A gate that learned which blocks attention falls on.  Of each kv head the blocks with the largest q[j].k[j,b] of the
/// gate are attended to, the budget's worth of them, and the first and the newest block. A block that is not full has
/// the score 0. Keys of the gate are rotated to the block's first position; of blocks that fill up while decoding to
/// the last one, as in the authors' inference. Prompts are attended in full. Gao, Guo, Cao et al. 2025,
/// arXiv:2506.08889, section 2; microsoft/SeerAttention (aba03e3), decode_sparse/attn_gate_inf.py, with a gate as wide
/// as the model's heads, pools Kmaxminavg and query heads Qproj; sparsity_method token_budget.
/// Weights: `kvarena fit`, or the authors' attn_gate_weights.pth saved as safetensors.
class SeerAttentionR final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("block", block_).min(1).doc("entries of a block, as gates were fitted");
    p("weights", weights_).doc("file of fitted or published gates; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<GateFitter>(block_); }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<GatedBlocks>(HeadLists<float>(shape.kv_heads, ledger));
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    const auto weights = fitted_weights(layer.model, {.method = "seerattention_r", .path = weights_});
    auto& own = static_cast<GatedBlocks&>(index);
    own.prompt = layer.prompt_tokens;
    own.gate = std::make_shared<const SeerGate>(
        gate_of(*weights, layer.layer, layer.cache.shape(), layer.model->rotation_of(layer.layer)));
  }

  /// Reads from the first block that was not full again: drafts may have been taken back.
  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<GatedBlocks&>(index);
    const int64_t d = entries.shape().head_dim, first = own.entries / block_, count = end / block_ - first;
    for (int64_t head = 0; head < own.heads.heads(); ++head) own.heads[head].resize(static_cast<size_t>(first * d));
    if (count == 0) return;
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < entries.shape().kv_heads; ++head) {
      heads.push_back(at::empty({count * block_, d}));
      entries.read_some(head, first * block_, count * block_, heads.back().data_ptr<float>(), nullptr, d);
    }
    const int64_t begin = entries.position(0, first * block_);
    const at::Tensor keys =
        unrotated(own.gate->rotation, at::stack(heads), at::arange(begin, begin + count * block_, at::kDouble));
    std::vector<double> positions;
    for (int64_t block = first; block < first + count; ++block) {
      const int64_t place = (block + 1) * block_ <= own.prompt ? block * block_ : (block + 1) * block_ - 1;
      positions.push_back(static_cast<double>(entries.position(0, place)));
    }
    const at::Tensor rows = own.gate->blocks(pooled(keys.to(at::kFloat), block_), at::tensor(positions, at::kDouble))
                                .to(at::kFloat)
                                .contiguous();
    for (int64_t head = 0; head < rows.size(0); ++head) {
      const float* const row = rows.const_data_ptr<float>() + head * count * d;
      own.heads[head].insert(own.heads[head].end(), row, row + count * d);
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& own = static_cast<const GatedBlocks&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t d = shape.head_dim, full = own.entries / block_, blocks = (own.entries + block_ - 1) / block_;
    const Candidates all{.last = blocks, .count = std::max<int64_t>(1, among.budget / block_)};
    if (all.count >= blocks) return {};
    const at::Tensor position = at::tensor({static_cast<double>(queries.position)}, at::kDouble);
    const at::Tensor q = at::from_blob(const_cast<float*>(queries.q), {shape.q_heads, 1, d});
    const at::Tensor asked = own.gate->queries(unrotated(own.gate->rotation, q, position).to(at::kFloat), position)
                                 .to(at::kFloat)
                                 .contiguous();
    Selection selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> scores(static_cast<size_t>(blocks));
      for (int64_t block = 0; block < full; ++block) {
        double sum = 0;
        for (int64_t c = 0; c < d; ++c)
          sum += static_cast<double>(asked.const_data_ptr<float>()[head * d + c]) * own.heads[head][block * d + c];
        scores[block] = static_cast<float>(sum);
      }
      std::vector<int32_t> chosen = best_candidates(scores, all, "seerattention_r");
      if (chosen.front() != 0) chosen.insert(chosen.begin(), 0);
      if (chosen.back() != blocks - 1) chosen.push_back(static_cast<int32_t>(blocks - 1));
      std::vector<int32_t>& list = selection.lists.emplace_back();
      for (const int64_t block : chosen) {
        for (int64_t i = block * block_; i < std::min((block + 1) * block_, own.entries); ++i)
          list.push_back(static_cast<int32_t>(i));
      }
    }
    return selection;
  }

 private:
  int64_t block_ = 64;
  std::string weights_;
};

KVARENA_RETRIEVER(SeerAttentionR, {.name = "seerattention_r",
                                   .title = "SeerAttention-R",
                                   .summary = "Attends to the blocks that a learned gate foretells attention to.",
                                   .paper = "arXiv:2506.08889, section 2"});

}  // namespace
}  // namespace kvarena
