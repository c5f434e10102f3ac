#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "harness/method/entry_scores.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/head_lists.h"
#include "harness/method/layer_view.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// A network for each of some query heads, with SiLU between its linear maps.
struct HashNet {
  std::vector<at::Tensor> weights;  // [heads, in, out]
  std::vector<at::Tensor> biases;   // [heads, 1, out]

  /// Rows [heads, n, head_dim] -> [heads, n, bits], whose signs are the rows' bits.
  [[nodiscard]] at::Tensor operator()(at::Tensor rows) const {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i > 0) rows = at::silu(rows);
      rows = at::matmul(rows, weights[i]) + biases[i];
    }
    return rows;
  }
};

/// A tensor's name without its layer, as the authors' checkpoints have it; side is "q" or "k", map 0, 1, ...
std::string name_of(const char* side, int64_t head, int64_t map, const char* what) {
  return fmt::format("learning_to_hash_transformation_{}.{}.{}.{}", side, head, 2 * map, what);
}

/// The networks of a kv head's query heads.
HashNet net_of(const FittedWeights& weights, int64_t layer, const char* side, const LayerShape& shape,
               int64_t kv_head) {
  HashNet net;
  const auto named = [&](int64_t head, const char* what) {
    return fmt::format("{}.{}", layer, name_of(side, head, std::ssize(net.weights), what));
  };
  const int64_t first = kv_head * shape.group();
  int64_t in = shape.head_dim;
  while (net.weights.empty() || weights.has(named(first, "weight"))) {
    std::vector<at::Tensor> maps, biases;
    const int64_t out = weights.at(named(first, "weight"), {-1, in}).shape[0];
    for (int64_t head = first; head < first + shape.group(); ++head) {
      maps.push_back(tensor_of(weights.at(named(head, "weight"), {out, in})).t());
      biases.push_back(tensor_of(weights.at(named(head, "bias"), {out})).unsqueeze(0));
    }
    net.weights.push_back(at::stack(maps).contiguous());
    net.biases.push_back(at::stack(biases));
    in = out;
  }
  return net;
}

/// Trains the networks by the authors' loss: binary cross-entropy of sigmoid(tanh(q's numbers) . tanh(k's numbers)), in
/// which the 32 entries of the largest q.k of each query count 20 times. The first and the newest 128 entries have no
/// part (AdamW here, Adam in the authors' code, which reads 32k tokens in chunks).
class HashFitter final : public Fitter {
 public:
  HashFitter(int64_t bits, int64_t inner) : bits_(bits), inner_(inner) {}

  FittedRequest artifact() const override { return {.method = "hashattention", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.window = kQueries}; }
  int64_t sample_tokens() const override { return 1024; }
  bool half() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const at::Tensor queries = layer.queries(kQueries);
    const at::Tensor rows = draw_rows(queries.size(1), kRows, draws);
    return {{"keys", weight_of(layer.keys().repeat_interleave(layer.group(), 0))},
            {"queries", weight_of(queries.index_select(1, rows))},
            {"places", weight_of((rows + layer.n() - queries.size(1)).to(at::kFloat))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const std::vector<int64_t>& shape = records.front().at("keys").shape;  // [q_heads, n, head_dim]
    const std::vector<int64_t> sizes = {shape[2], inner_, inner_, bits_};
    std::vector<at::Tensor> p;
    for (int64_t i = 0; i < 2 * kMaps; ++i) {
      const int64_t in = sizes[i % kMaps], out = sizes[i % kMaps + 1];
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      const int64_t first = (2 * i + 1) << 32;  // draws before it shuffle
      p.push_back(draw_uniform({shape[0], in, out}, bound, draws, first));
      p.push_back(draw_uniform({shape[0], 1, out}, bound, draws, first + (int64_t{1} << 32)));
    }
    descend(p, std::ssize(records), {.batch = 1, .learning_rate = 1e-3}, draws, [&](const at::Tensor& rows) {
      return loss(records[static_cast<size_t>(rows.item<int64_t>())], net(p, 0), net(p, 1));
    });
    FittedTensors weights;
    for (int64_t side = 0; side < 2; ++side) {
      const HashNet found = net(p, side);
      for (int64_t map = 0; map < kMaps; ++map) {
        for (int64_t head = 0; head < shape[0]; ++head) {
          const char* const name = side == 0 ? "q" : "k";
          weights[name_of(name, head, map, "weight")] = weight_of(found.weights[map][head].t());
          weights[name_of(name, head, map, "bias")] = weight_of(found.biases[map][head][0]);
        }
      }
    }
    return weights;
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override {
    FittedTensors all;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      for (const auto& [name, tensor] : layers[layer]) all[fmt::format("{}.{}", layer, name)] = tensor;
    }
    return all;
  }

 private:
  static constexpr int64_t kMaps = 3, kQueries = 256, kRows = 64, kBest = 32, kFringe = 128;
  static constexpr double kWeight = 20;

  /// The queries' networks, or the keys', of what is trained.
  static HashNet net(const std::vector<at::Tensor>& p, int64_t side) {
    HashNet net;
    for (int64_t map = 0; map < kMaps; ++map) {
      net.weights.push_back(p[2 * (side * kMaps + map)]);
      net.biases.push_back(p[2 * (side * kMaps + map) + 1]);
    }
    return net;
  }

  static at::Tensor loss(const FittedTensors& record, const HashNet& of_queries, const HashNet& of_keys) {
    const at::Tensor keys = tensor_of(record.at("keys")), queries = tensor_of(record.at("queries"));
    const at::Tensor places = tensor_of(record.at("places")).unsqueeze(1), entries = at::arange(keys.size(1));
    const at::Tensor left_out = (entries < kFringe).logical_or(entries > places - kFringe);  // [rows, n]
    const at::Tensor scores = at::matmul(queries, keys.transpose(1, 2)).masked_fill(left_out, -INFINITY);
    const at::Tensor best = std::get<1>(scores.topk(std::min(kBest, keys.size(1))));
    const at::Tensor target = at::zeros_like(scores).scatter(2, best, 1).masked_fill(left_out, 0);
    const at::Tensor foretold = at::matmul(of_queries(queries).tanh(), of_keys(keys).tanh().transpose(1, 2));
    return at::binary_cross_entropy(at::sigmoid(foretold).masked_fill(left_out, 0), target, target * (kWeight - 1) + 1);
  }

  int64_t bits_, inner_;
};

/// Signatures of a layer's keys, one for each query head.
struct SignatureIndex final : public LayerIndex {
  explicit SignatureIndex(HeadLists<uint32_t> signs) : heads(std::move(signs)) {}

  using Nets = std::vector<HashNet>;                // [kv_heads]
  std::shared_ptr<const Nets> of_queries, of_keys;  // weights of the method: not counted
  HeadLists<uint32_t> heads;                        // [q_heads][entries, words]

  [[nodiscard]] int64_t bits() const { return of_keys->front().biases.back().size(2); }
  [[nodiscard]] int64_t words() const { return (bits() + 31) / 32; }
  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<SignatureIndex>(HeadLists(heads, ledger));
    copy->of_queries = of_queries;
    copy->of_keys = of_keys;
    return copy;
  }
};

/// Signs of rows [n, bits], [n, words]: bit i is whether number i is above 0.
std::vector<uint32_t> signs_of(const at::Tensor& rows) {
  const at::Tensor numbers = rows.contiguous();
  const float* number = numbers.const_data_ptr<float>();
  const int64_t bits = rows.size(1), words = (bits + 31) / 32;
  std::vector<uint32_t> signs(static_cast<size_t>(rows.size(0) * words));
  for (int64_t row = 0; row < rows.size(0); ++row) {
    for (int64_t bit = 0; bit < bits; ++bit, ++number)
      signs[row * words + bit / 32] |= (*number > 0 ? 1U : 0U) << (bit % 32);
  }
  return signs;
}

/// Signatures that learned functions give.  Of each query head h two networks map its queries and its kv head's rotated
/// keys to `bits` signs each, and the entries whose signs agree with the query's most often,
///   s[h,i] = sign(f_h(q_h)) . sign(g_h(k_i)),
/// are attended beside the `sinks` first and `window` newest ones; of equals the older. Desai, Yang, Cuadron, Klimovic,
/// Zaharia, Gonzalez, Stoica 2024, arXiv:2412.14468; xAlg-ai/HashAttention-1.0 (72ef2e7) and, for the choice of entries
/// at each step, sparse-attention-hub (1a048c9), HashAttentionTopKMasker. Weights: `kvarena fit`, or the authors' state
/// dict saved as safetensors, of as many maps as it has.
class HashAttention final : public ScoringRetriever {
 public:
  HashAttention() : ScoringRetriever("hashattention", "none") {}

  void parameters(ParameterVisitor& p) override {
    ScoringRetriever::parameters(p);
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("window", window_).min(1).doc("newest entries, always attended");
    p("weights", weights_).doc("file of fitted or published networks; empty = the project's for the model");
    p("bits", bits_).min(1).doc("of a signature when networks are fitted");
    p("inner", inner_).min(1).doc("width of the two inner layers when networks are fitted (published: 128)");
  }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_, .recent = window_}; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<HashFitter>(bits_, inner_); }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<SignatureIndex>(HeadLists<uint32_t>(shape.q_heads, ledger));
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& /*seen*/) const override {
    auto& own = static_cast<SignatureIndex&>(index);
    const auto weights = fitted_weights(layer.model, {.method = "hashattention", .path = weights_});
    const LayerShape& shape = layer.cache.shape();
    const auto nets = [&](const char* side) {
      SignatureIndex::Nets all;
      for (int64_t head = 0; head < shape.kv_heads; ++head)
        all.push_back(net_of(*weights, layer.layer, side, shape, head));
      return std::make_shared<const SignatureIndex::Nets>(std::move(all));
    };
    own.of_queries = nets("q");
    own.of_keys = nets("k");
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<SignatureIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t count = end - own.entries, group = shape.group();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const at::Tensor keys = at::empty({1, count, shape.head_dim});
      entries.read_some(head, own.entries, count, keys.data_ptr<float>(), nullptr, shape.head_dim);
      const at::Tensor numbers = own.of_keys->at(head)(keys.expand({group, -1, -1}));
      for (int64_t member = 0; member < group; ++member) {
        LedgerVector<uint32_t>& signs = own.heads[head * group + member];
        signs.resize(static_cast<size_t>(own.entries * own.words()));  // drafts were taken back
        const std::vector<uint32_t> more = signs_of(numbers[member]);
        signs.insert(signs.end(), more.begin(), more.end());
      }
    }
  }

 protected:
  void score(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
             std::span<float> scores) const override {
    const auto& own = static_cast<const SignatureIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t group = shape.group(), words = own.words();
    const at::Tensor q =
        at::from_blob(const_cast<float*>(queries.q) + kv_head * group * shape.head_dim, {group, 1, shape.head_dim});
    const at::Tensor numbers = own.of_queries->at(kv_head)(q);
    auto score = scores.begin();
    for (int64_t member = 0; member < group; ++member) {
      const std::vector<uint32_t> asked = signs_of(numbers[member]);
      const uint32_t* signs = own.heads[kv_head * group + member].data();
      for (int64_t entry = 0; entry < own.entries; ++entry, signs += words) {
        int64_t different = 0;
        for (int64_t word = 0; word < words; ++word) different += std::popcount(signs[word] ^ asked[word]);
        *score++ = static_cast<float>(own.bits() - 2 * different);
      }
    }
  }

 private:
  int64_t sinks_ = 128;
  int64_t window_ = 128;
  std::string weights_;
  int64_t bits_ = 32;
  int64_t inner_ = 24;
};

KVARENA_RETRIEVER(HashAttention, {.name = "hashattention",
                                  .title = "HashAttention",
                                  .summary = "Attends to the entries whose learned signatures agree with the query's.",
                                  .paper = "arXiv:2412.14468"});

}  // namespace
}  // namespace kvarena
