#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "harness/cache/indexed_segment.h"
#include "harness/cache/known_choice.h"
#include "harness/cache/residual_reader.h"
#include "harness/core/error.h"
#include "harness/method/budget.h"
#include "harness/method/entry_scores.h"
#include "harness/method/fitter.h"
#include "harness/method/layer_view.h"
#include "harness/method/offloaded_layers.h"
#include "harness/method/registry.h"
#include "harness/method/retrieval_head.h"
#include "harness/method/tapped_features.h"
#include "harness/method/tensors.h"
#include "harness/method/yielding_index.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// The head's state of a request: every token's key, and the entries it chose for the pass under way.
struct HeadIndex : public LayerIndex, public KnownChoice, public ResidualReader {
  HeadIndex(std::shared_ptr<const RetrievalHead> own_head, std::unique_ptr<SearchedKeys> own_keys, int64_t layers,
            const LedgerPtr& own_ledger)
      : head(std::move(own_head)), ledger(own_ledger), keys(std::move(own_keys)), features(layers, own_ledger) {}
  HeadIndex(const HeadIndex& other, const LedgerPtr& own_ledger)
      : LayerIndex(other),
        head(other.head),
        ledger(own_ledger),
        keys(other.keys->clone(ledger)),
        query(other.query),
        unread(other.unread),
        features(other.features, own_ledger) {
    for (const auto& list : other.chosen)
      chosen.emplace_back(list.begin(), list.end(), LedgerAllocator<int32_t>(ledger));
  }

  std::shared_ptr<const RetrievalHead> head;
  LedgerPtr ledger;
  std::unique_ptr<SearchedKeys> keys;         // of the head
  std::vector<float> query;                   // [q_heads, head_dim] of the newest token
  std::vector<LedgerVector<int32_t>> chosen;  // one list a kv head or a query head; empty: everything
  std::vector<int32_t> unread;                // newest tokens, whose features come behind the pass under way
  TappedFeatures features;                    // of the token before `unread` and of these; none where they are not read

  [[nodiscard]] bool known(const KvCache& /*cache*/) const override { return true; }
  void see_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    if (head->reads_features()) features.see(layer, rows, count, hidden_size);
  }
  [[nodiscard]] int64_t bytes() const override {
    int64_t total = static_cast<int64_t>(features.rows.capacity() * sizeof(float)) + keys->bytes();
    for (const auto& list : chosen) total += static_cast<int64_t>(list.capacity() * sizeof(int32_t));
    return total;
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& other) const override {
    return std::make_unique<HeadIndex>(*this, other);
  }
};

/// With the layers of a request that leave the device when others need its room.
struct AdaptiveHeadIndex final : public HeadIndex, public YieldingIndex {
  AdaptiveHeadIndex(const HeadIndex& other, OffloadedLayers own_layers, const LedgerPtr& own_ledger)
      : HeadIndex(other, own_ledger), layers(std::move(own_layers)) {}

  OffloadedLayers layers;

  [[nodiscard]] int64_t least_bytes(const KvCache& own, int64_t tokens) const override {
    return layers.least_bytes(own, tokens, grown(tokens));
  }
  void yield(KvCache& own, int64_t bytes, Activity& activity) override {
    layers.send_until(own, bytes, own.length + 1, grown(own.length + 1), activity);
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& other) const override {
    return std::make_unique<AdaptiveHeadIndex>(*this, layers, other);
  }

 private:
  /// Bytes of the index while it takes so many tokens: its vectors move to twice their room.
  [[nodiscard]] int64_t grown(int64_t tokens) const {
    const int64_t needed = head->kv_heads() * kernels::cell_bytes(tokens, head->head_dim(), DType::bf16);
    const int64_t held = bytes();
    return needed <= held ? held : held + 2 * needed;
  }
};

/// Distils the model's attention into W_q and W_k over the embeddings: the mean distribution of all layers, for each kv
/// head the mean over its group, is what the group's heads together should give (cross-entropy with their mean).
class HeadFitter final : public Fitter {
 public:
  FittedRequest artifact() const override {
    return {.method = "specontext", .variant = {}, .path = {}, .wanted = retrieval_head_tensors()};
  }
  Needs needs() const override { return {.window = kWindow}; }
  int64_t sample_tokens() const override { return kTokens; }
  bool half() const override { return true; }
  bool joint() const override { return true; }

  /// p [kv_heads, rows, n]: what some of the last queries attend to.
  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const int64_t n = layer.n();
    const int64_t window = std::min(kWindow, n);
    const at::Tensor rows = draw_rows(window, kRows, draws) + (n - window);
    std::vector<at::Tensor> seen;
    layer.for_each_query_block(window, [&](const at::Tensor& scores, int64_t first) {
      const at::Tensor own = rows.masked_select(rows.ge(first).logical_and(rows.lt(first + scores.size(1)))) - first;
      if (own.numel() == 0) return;
      const at::Tensor p = at::softmax(scores.index_select(1, own), -1);
      seen.push_back(p.view({layer.kv_heads(), layer.group(), own.numel(), n}).mean(1));
    });
    FittedTensors record = {{"p", weight_of(at::cat(seen, 1))}};
    if (layer.layer() > 0) return record;
    const ModelFacts& model = layer.model();
    const Rotation rotation = model.rotary({.head_dim = layer.head_dim(), .theta = model.rope_theta});
    at::Tensor x = at::empty({n, model.hidden_size});
    model.embed(layer.tokens(), x.data_ptr<float>());
    record["x"] = weight_of(x);
    record["rows"] = weight_of(rows.to(at::kFloat));
    record["inverse"] = weight_of(at::tensor(rotation.inverse).to(at::kFloat));
    record["q_heads"] = {.shape = {1}, .values = {static_cast<float>(layer.q_heads())}};
    record["eps"] = {.shape = {1}, .values = {static_cast<float>(model.norm_eps)}};
    return record;
  }
  FittedTensors join(std::vector<FittedTensors> layers) const override {
    at::Tensor sum = tensor_of(layers.front().at("p")).clone();
    for (size_t layer = 1; layer < layers.size(); ++layer) sum += tensor_of(layers[layer].at("p"));
    layers.front()["p"] = weight_of(sum / static_cast<double>(layers.size()));
    return std::move(layers.front());
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const FittedTensors& first = records.front();
    const auto q_heads = static_cast<int64_t>(first.at("q_heads").values[0]);
    const int64_t kv_heads = first.at("p").shape[0];
    const int64_t dim = 2 * first.at("inverse").shape[0];
    const int64_t hidden = first.at("x").shape[1];
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    std::vector<at::Tensor> p = {draw_uniform({q_heads * dim, hidden}, bound, draws, int64_t{1} << 32),
                                 draw_uniform({kv_heads * dim, hidden}, bound, draws, int64_t{1} << 33)};
    const Descent how{.epochs = kEpochs, .batch = 2, .learning_rate = 3e-3, .weight_decay = 0.01};
    descend(p, static_cast<int64_t>(records.size()), how, draws, [&](const at::Tensor& texts) {
      at::Tensor total = at::zeros({});
      for (int64_t i = 0; i < texts.numel(); ++i) {
        total = total + loss(p[0], p[1], records[static_cast<size_t>(texts[i].item<int64_t>())], q_heads);
      }
      return total / static_cast<double>(texts.numel());
    });
    return {{"q", weight_of(p[0].view({q_heads, dim, hidden}))},
            {"k", weight_of(p[1].view({kv_heads, dim, hidden}))},
            {"window", {.shape = {1}, .values = {static_cast<float>(kTokens)}}}};
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return layers.front(); }

 private:
  static constexpr int64_t kTokens = 1024;
  static constexpr int64_t kWindow = 512;  // last queries, of which some are learned from
  static constexpr int64_t kRows = 64;
  static constexpr int64_t kEpochs = 20;

  static at::Tensor loss(const at::Tensor& w_q, const at::Tensor& w_k, const FittedTensors& record, int64_t q_heads) {
    const at::Tensor target = tensor_of(record.at("p"));  // [kv_heads, rows, n]
    const at::Tensor raw = tensor_of(record.at("x"));
    const at::Tensor x = raw * (raw.square().mean(-1, true) + record.at("eps").values[0]).rsqrt();
    const at::Tensor inverse = tensor_of(record.at("inverse"));
    const at::Tensor rows = tensor_of(record.at("rows"));
    const at::Tensor all = at::arange(x.size(0), at::kFloat);
    const int64_t dim = 2 * inverse.size(0);
    const int64_t kv_heads = target.size(0);
    const at::Tensor k = rotated(at::linear(x, w_k).view({-1, kv_heads, dim}), all, inverse);
    const at::Tensor q =
        rotated(at::linear(x.index_select(0, rows.to(at::kLong)), w_q).view({-1, q_heads, dim}), rows, inverse);
    const at::Tensor grouped = q.permute({1, 0, 2}).reshape({kv_heads, -1, dim});  // [kv_heads, group * rows, dim]
    at::Tensor scores = at::matmul(grouped, k.permute({1, 2, 0})) / std::sqrt(static_cast<double>(dim));
    scores = scores.view({kv_heads, q_heads / kv_heads, rows.size(0), -1})
                 .masked_fill(all.unsqueeze(0) > rows.unsqueeze(1), -std::numeric_limits<float>::infinity());
    const at::Tensor mean = at::softmax(scores, -1).mean(1);
    return -(target * (mean + 1e-9).log()).sum(-1).mean();
  }
};

/// A small head reads each token before the model does and says what all layers will attend to.
///   p[h,i] = softmax over i of q_h.k_i / sqrt(d) of the head;  top entries of  max over h in the group of p[h,i]
/// One set a kv head of the model, the same in all layers, so that loading can begin before the model runs. Over a
/// latent each query head has a set of its own; level = "batch" takes one set for all heads, by the maximum over them.
/// Prompt and generated entries compete alike; the newest is always attended and counts in the budget.
/// Xu et al. 2025, arXiv:2512.00722, sections 4 to 6.
/// The head: `kvarena fit`, of texts or (--from) of an EAGLE-3 drafter's folder. A drafter's projections read
/// [norm(embedding of token i) ; norm(fc of what the model computed of token i - 1)], the latter behind three layers
/// (TappedFeatures); the paper does not mention that half. feature = "zero" leaves it out, "previous" reads it: zeros
/// before the first token, the prompt's own hidden states, then those of each pass. Tokens that come in one pass are
/// read when it is over, but for the first. offload: layers keep their entries behind the device and the chosen ones in
/// slots on it, which come while earlier layers run; of a step's choice only what no slot holds is moved (elastic,
/// section 5.4). "adaptive" (section 6) sends layers away one by one, the last first, when what a request may hold,
/// timing.device_mib over the requests that run, is less than OffloadedLayers::bytes() and the head's keys. Weights lie
/// outside, those of the head too.
class SpeContext final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("level", level_).one_of({"head", "batch"}).doc("a set for each kv head, or one for all heads");
    p("dense_layers", dense_layers_).min(0).doc("first layers, which attend to everything");
    p("head", head_)
        .doc(
            "file of a fitted head or an imported EAGLE-3 drafter; empty = the project's for the model, fitted to its "
            "attention over some essays, where the paper's heads are trained to draft");
    p("feature", feature_)
        .one_of({"zero", "previous"})
        .doc("a drafter's input beside the embedding: nothing, or what the model computed of the token before");
    p("yarn", yarn_).min(0).doc("YaRN's factor on the head's window; 0 = as far as the model's reaches");
    p("offload", offload_)
        .one_of({"none", "all", "adaptive"})
        .doc("layers whose entries lie behind the device: none, all, or as many as timing.device_mib asks for");
    p("tier", tier_).one_of({"host", "disk"}).doc("where the entries of offloaded layers lie");
    p("elastic", elastic_).doc("move only entries that were not chosen a step before; otherwise all chosen ones");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
  }
  Needs needs() const override {
    if (feature_ == "zero") return {};
    return {.taps = {TappedFeatures::kTaps.begin(), TappedFeatures::kTaps.end()}};
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<HeadFitter>(); }
  HookAccess reach() const override { return HookAccess::views; }
  /// The head's choice is one for all layers.
  bool can_leave_layers_out() const override { return false; }
  std::string cannot_draft() const override {
    if (offload_ != "none") return fmt::format("\"offload\": \"{}\"", offload_);
    return feature_ == "zero" ? "" : fmt::format("\"feature\": \"{}\"", feature_);
  }
  bool follows_memory() const override { return offload_ == "adaptive"; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override {
    if (budget_.unlimited()) return;
    LayerContext& first = layers.front();
    KvCache& cache = *first.request;
    const auto head = read_head(*first.model, first.cache.shape(), first.layers);
    HeadIndex index(head, first.model->searched_keys(head->kv_heads(), head->head_dim(), cache.ledger), first.layers,
                    cache.ledger);
    read_prompt(index, *first.model, first.prompt, seen);
    if (offload_ == "adaptive") {
      cache.index = std::make_unique<AdaptiveHeadIndex>(index, offloaded(cache, *first.model), cache.ledger);
      return;
    }
    cache.index = index.clone(cache.ledger);
    if (offload_ == "none") return;
    const OffloadedLayers away = offloaded(cache, *first.model);
    for (LayerContext& layer : layers) {
      away.send(cache, layer.layer, layer.activity);
      if (auto* slots = slots_of(layer.cache)) slots->settle();
    }
  }

  void on_tokens(RequestContext& request, std::span<const int32_t> tokens) const override {
    if (!request.cache.index) return;
    auto& index = static_cast<HeadIndex&>(*request.cache.index);
    index.unread.insert(index.unread.end(), tokens.begin(), tokens.end());
    const bool reads = index.head->reads_features();
    const auto known = reads ? std::ssize(index.features.rows) / index.head->feature_size() : std::ssize(index.unread);
    const auto count = std::min<int64_t>(known, std::ssize(index.unread));
    read(index, *request.model, std::span(index.unread).first(static_cast<size_t>(count)),
         reads ? index.features.rows.data() : nullptr);
    index.unread.erase(index.unread.begin(), index.unread.begin() + count);
    index.features.rows.clear();
  }

  void begin_step(RequestContext& request, int64_t q_len) const override {
    if (!request.cache.index) return;
    auto& index = static_cast<HeadIndex&>(*request.cache.index);
    index.chosen.clear();
    const LayerShape& shape = request.cache.layers.front().shape();
    const int64_t n = request.cache.length + q_len;
    const int64_t budget = budget_.capacity(n, shape, static_cast<int64_t>(request.cache.layers.size()));
    if (q_len == 1 && n > budget) choose(index, *request.model, shape, n, budget);
    prefetch(request.cache, index, n, q_len);
  }

  void select(LayerContext& layer, const LayerQueries& /*queries*/) const override {
    if (layer.request == nullptr || !layer.request->index) return;
    const auto& index = static_cast<const HeadIndex&>(*layer.request->index);
    for (const auto& list : index.chosen) {
      if (attends_to_all(layer.layer, layer.cache)) break;
      layer.activity.entries_skipped += index.entries - static_cast<int64_t>(list.size());
    }
    if (auto* slots = slots_of(layer.cache)) {
      layer.cache.view = slots->arrive(layer.cache.tail());
      layer.activity.traffic += slots->loaded();
    } else if (!index.chosen.empty() && !attends_to_all(layer.layer, layer.cache)) {
      layer.cache.view = std::make_unique<IndexedSegment>(layer.cache.tail(), lists_of(index), layer.cache.ledger());
    }
  }

  void after_append(LayerContext& layer) const override {
    if (slots_of(layer.cache) != nullptr) follow(layer.cache, layer.activity);
  }

 private:
  using Lists = std::vector<std::vector<int32_t>>;
  static constexpr int64_t kLayersWithTaps = 7;

  [[nodiscard]] bool attends_to_all(int64_t layer, const LayerCache& cache) const {
    return layer < dense_layers_ || cache.shape().window > 0;
  }
  /// Lists of chosen entries.
  [[nodiscard]] int64_t lists(const ModelFacts& model, const LayerShape& shape) const {
    return level_ == "batch" ? 1 : model.latent ? shape.q_heads : shape.kv_heads;
  }

  [[nodiscard]] OffloadedLayers offloaded(const KvCache& cache, const ModelFacts& model) const {
    KVARENA_ASSERT(model.tiers != nullptr, "a machine without tiers");
    const LayerShape& shape = cache.layers.front().shape();
    OffloadedLayers away{.tiers = model.tiers,
                         .slots = {.tier = tier_ == "disk" ? Tier::disk : Tier::host, .elastic = elastic_},
                         .budget = budget_,
                         .lists = std::max<int64_t>(1, lists(model, shape) / shape.kv_heads),
                         .leaves = {}};
    for (const LayerCache& layer : cache.layers) {
      away.leaves.push_back(!attends_to_all(std::ssize(away.leaves), layer));
    }
    return away;
  }

  void prefetch(KvCache& cache, const HeadIndex& index, int64_t n, int64_t q_len) const {
    for (LayerCache& layer : cache.layers) {
      storage::SlotCache* slots = slots_of(layer);
      if (slots == nullptr) continue;
      KVARENA_ASSERT(q_len == 1, "an offloaded layer takes one token at a time");
      Lists wanted = lists_of(index);
      if (wanted.empty()) {
        wanted.assign(static_cast<size_t>(layer.shape().kv_heads), std::vector<int32_t>(static_cast<size_t>(n)));
        for (auto& list : wanted) std::iota(list.begin(), list.end(), 0);
      }
      slots->prefetch(std::move(wanted));
    }
  }

  /// The chosen entries, a list a kv head or a query head.
  static Lists lists_of(const HeadIndex& index) {
    Lists lists;
    for (const auto& list : index.chosen) lists.emplace_back(list.begin(), list.end());
    return lists;
  }

  void choose(HeadIndex& index, const ModelFacts& model, const LayerShape& shape, int64_t n, int64_t budget) const {
    const Lists found = index.keys->search({.q = index.query,
                                            .scale = 1 / std::sqrt(static_cast<float>(index.head->head_dim())),
                                            .lists = lists(model, shape),
                                            .among = n - 1,
                                            .count = budget - 1});
    if (found.empty()) refuse_numbers("specontext");
    for (const std::vector<int32_t>& list : found) {
      auto& chosen = index.chosen.emplace_back(static_cast<size_t>(budget), static_cast<int32_t>(n - 1),
                                               LedgerAllocator<int32_t>(index.ledger));
      std::ranges::copy(list, chosen.begin());
    }
    while (static_cast<int64_t>(index.chosen.size()) < shape.kv_heads) index.chosen.push_back(index.chosen.front());
  }

  [[nodiscard]] std::shared_ptr<const RetrievalHead> read_head(const ModelFacts& model, const LayerShape& shape,
                                                               int64_t layers) const {
    FittedRequest named = HeadFitter().artifact();
    named.path = head_;
    const auto weights = model.fitted(named);
    const bool features = feature_ == "previous";
    auto head = std::make_shared<const RetrievalHead>(*weights, model,
                                                      RetrievalHead::Options{.features = features, .yarn = yarn_});
    if (head->q_heads() != shape.q_heads) {
      fail({.place = weights->place,
            .found = fmt::format("a head of {} query heads", head->q_heads()),
            .expected = fmt::format("{}, as many as the model has", shape.q_heads)});
    }
    if (features) require_taps_of(*weights, layers);
    if (features && layers < kLayersWithTaps) {
      fail({.place = model.name,
            .found = fmt::format("{} layers", layers),
            .expected = fmt::format("at least {}, where EAGLE-3's three places are apart", kLayersWithTaps),
            .action = "write \"feature\": \"zero\""});
    }
    return head;
  }

  static void read_prompt(HeadIndex& index, const ModelFacts& model, std::span<const int32_t> prompt,
                          std::span<const LayerObservations> seen) {
    constexpr int64_t chunk = 512;
    const bool reads = index.head->reads_features();
    const int64_t n = std::ssize(prompt), width = index.head->feature_size();
    for (int64_t done = 0; done < n; done += chunk) {
      const int64_t count = std::min(chunk, n - done);
      std::vector<float> before;
      if (reads) {
        const int64_t unknown = done == 0 ? 1 : 0;  // nothing is before the first token
        index.features.take(seen, done - 1 + unknown, count - unknown, model.hidden_size);
        before.resize(static_cast<size_t>(unknown * width));
        before.insert(before.end(), index.features.rows.begin(), index.features.rows.end());
      }
      read(index, model, prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
           reads ? before.data() : nullptr);
    }
    if (!reads) return;
    index.features.take(seen, n - 1, 1, model.hidden_size);
  }

  /// The tokens that follow those read: their keys, and the last one's query. features: of the tokens before each.
  static void read(HeadIndex& index, const ModelFacts& model, std::span<const int32_t> tokens, const float* features) {
    const RetrievalHead& head = *index.head;
    const int64_t count = std::ssize(tokens), last = count - 1, position = index.keys->count();
    const int64_t d = head.head_dim();
    std::vector<float> x(static_cast<size_t>(count * model.hidden_size));
    std::vector<float> k(static_cast<size_t>(count * head.kv_heads() * d));
    model.embed(tokens, x.data());
    head.project(x.data(), features, count, position, nullptr, k.data());
    index.query.resize(static_cast<size_t>(head.q_heads() * d));
    head.project(x.data() + last * model.hidden_size,
                 features == nullptr ? nullptr : features + last * head.feature_size(), 1, position + last,
                 index.query.data(), nullptr);
    index.keys->append(k);
    index.entries = index.keys->count();
  }

  Budget budget_;
  std::string level_ = "head";
  int64_t dense_layers_ = 0;
  std::string head_;
  std::string feature_ = "zero";
  double yarn_ = 0;
  std::string offload_ = "none";
  std::string tier_ = "host";
  bool elastic_ = true;
};

KVARENA_METHOD(SpeContext, Family::retrieval,
               {.name = "specontext",
                .title = "SpeContext",
                .summary = "Attends to what a small head, which runs before the model, chooses for all layers.",
                .paper = "arXiv:2512.00722, section 4"});

}  // namespace
}  // namespace kvarena
