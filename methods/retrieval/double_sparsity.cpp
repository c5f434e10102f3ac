#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/method/entry_scores.h"
#include "harness/method/layer_view.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// Mean absolute value of every channel of a layer's keys before rotation, [kv_heads, head_dim].
at::Tensor mean_magnitude(const LayerView& layer) {
  const at::Tensor keys = layer.keys().to(at::kDouble);
  const std::vector<double>& inverse = layer.model().rotation_of(layer.layer()).inverse;
  const auto half = static_cast<int64_t>(inverse.size());
  const at::Tensor rates = at::tensor(inverse, at::kDouble);
  const at::Tensor angles = layer.positions().to(at::kDouble).unsqueeze(2) * rates;  // [kv_heads, n, half]
  const at::Tensor low = keys.narrow(2, 0, half);
  const at::Tensor high = keys.narrow(2, half, half);
  const at::Tensor first = low * angles.cos() + high * angles.sin();
  const at::Tensor second = high * angles.cos() - low * angles.sin();
  const at::Tensor rest = keys.narrow(2, 2 * half, layer.head_dim() - 2 * half);
  return at::cat({first, second, rest}, 2).abs().mean(1);
}

/// Ranks channels by their mean magnitude over all texts.
class ChannelRanking final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "double_sparsity", .variant = {}, .path = {}}; }
  Needs needs() const override { return {}; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    return {{"tokens", {.shape = {1}, .values = {static_cast<float>(layer.n())}}},
            {"magnitude", weight_of(mean_magnitude(layer).unsqueeze(0))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const at::Tensor tokens = joined(records, "tokens").to(at::kDouble).view({-1, 1, 1});
    const at::Tensor magnitudes = joined(records, "magnitude").to(at::kDouble);
    const at::Tensor mean = (magnitudes * tokens).sum(0) / tokens.sum();
    return {{"channels", weight_of(at::argsort(mean, /*dim=*/-1, /*descending=*/true).to(at::kFloat))}};
  }
};

/// Numbers of a few channels in few bits, with the range of each entry.
struct Labels {
  explicit Labels(const LedgerPtr& ledger)
      : codes(LedgerAllocator<uint8_t>(ledger)), ranges(LedgerAllocator<float>(ledger)) {}
  LedgerVector<uint8_t> codes;  // [entries][code bytes], low bits first
  LedgerVector<float> ranges;   // [entries][2]: smallest number and levels per unit; of 16 bits the numbers themselves
};

struct LabelIndex final : public LayerIndex {
  std::vector<Labels> heads;                   // [kv_heads]
  std::vector<std::vector<int32_t>> channels;  // [kv_heads][labels], weights of the method: not counted

  [[nodiscard]] int64_t bytes() const override {
    size_t total = 0;
    for (const Labels& head : heads) total += head.codes.capacity() + head.ranges.capacity() * sizeof(float);
    return static_cast<int64_t>(total);
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<LabelIndex>();
    copy->channels = channels;
    for (const Labels& head : heads) {
      Labels& own = copy->heads.emplace_back(ledger);
      own.codes.assign(head.codes.begin(), head.codes.end());
      own.ranges.assign(head.ranges.begin(), head.ranges.end());
    }
    return copy;
  }
};

/// A row quantised between its smallest and its largest number: code / levels + low.
struct Quantised {
  std::vector<uint8_t> codes;
  float low = 0;
  float levels = 1;  // per unit

  [[nodiscard]] float number(size_t i) const { return static_cast<float>(codes[i]) / levels + low; }
};

Quantised quantise(const std::vector<float>& row, int64_t bits) {
  const auto [low, high] = std::ranges::minmax(row);
  const float most = static_cast<float>((1 << bits) - 1);
  Quantised result{.codes = {}, .low = low, .levels = most / (high > low ? high - low : 1.0F)};
  for (const float x : row) {
    const float code = std::nearbyint((x - low) * result.levels);  // ties to even
    result.codes.push_back(static_cast<uint8_t>(std::clamp(code, 0.0F, most)));
  }
  return result;
}

/// Few channels in few bits.  The head_dim / group_factor channels of a kv head whose keys are largest in the mean, a
/// ranking fitted on text, are kept of every key as its label, quantised between the label's smallest and largest
/// number; the query's channels are treated alike. Products of labels rank the entries, the best are attended exactly.
/// The ranking is of keys before rotation while labels are of rotated keys, each query head selects for itself, and the
/// first two layers are dense, all as in the authors' code; prompts, which are selected for too there, are dense here.
/// Theirs may also rank by queries or by products. ranking = "prompt" ranks by the request's own prompt, which needs no
/// fit. 16 bits keep labels as they are.
/// Yang et al. 2024, arXiv:2408.07092, section 3; andy-yang-1/DoubleSparse, evaluation/modify_llama.py and
/// config/offline_calibration.py.
class DoubleSparsity final : public ScoringRetriever {
 public:
  DoubleSparsity() : ScoringRetriever("double_sparsity", "none") {}

  void parameters(ParameterVisitor& p) override {
    ScoringRetriever::parameters(p);
    p("group_factor", group_factor_).min(1).doc("one of so many channels is in a label");
    p("label_bits", label_bits_).min(1).max(16).doc("bits of a label's channel: 1, 2, 4, 8 or 16");
    p("ranking", ranking_).one_of({"fitted", "prompt"}).doc("whose channels: of a fit, or of this prompt's keys");
    p("weights", weights_).doc("file of fitted rankings; empty = the project's for the model");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (label_bits_ != 16 && 8 % label_bits_ != 0) {
      problems.push_back(describe({.place = place + ".label_bits",
                                   .found = fmt::format("{}", label_bits_),
                                   .expected = "1, 2, 4, 8 or 16",
                                   .action = ""}));
    }
    if (!weights_.empty() && ranking_ == "prompt") {
      problems.push_back(describe({.place = place + ".weights",
                                   .found = fmt::format("\"{}\" beside a ranking by the prompt's keys", weights_),
                                   .expected = "\"ranking\": \"fitted\" beside it"}));
    }
  }
  int64_t default_dense_layers() const override { return 2; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<ChannelRanking>(); }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    auto index = std::make_unique<LabelIndex>();
    for (int64_t head = 0; head < shape.kv_heads; ++head) index->heads.emplace_back(ledger);
    return index;
  }

  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& seen) const override {
    auto& own = static_cast<LabelIndex&>(index);
    const LayerView view(layer, &seen);
    const at::Tensor ranked = ranking_ == "prompt" ? at::argsort(mean_magnitude(view), -1, true) : of_fit(view);
    const at::Tensor channels = ranked.to(at::kInt).contiguous();
    const int64_t labels = std::max<int64_t>(1, view.head_dim() / group_factor_);
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      const int32_t* row = channels.const_data_ptr<int32_t>() + head * view.head_dim();
      own.channels.emplace_back(row, row + labels);
    }
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& own = static_cast<LabelIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t count = end - own.entries;
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim));
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      entries.read_some(head, own.entries, count, keys.data(), nullptr, shape.head_dim);
      if (own.entries == 0) reserve(own.heads[head], count, own.channels[head].size());
      for (int64_t i = 0; i < count; ++i) append(own, head, keys.data() + i * shape.head_dim);
    }
  }

 protected:
  void score(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
             std::span<float> scores) const override {
    const auto& own = static_cast<const LabelIndex&>(index);
    const LayerShape& shape = entries.shape();
    const auto n = static_cast<int64_t>(scores.size()) / shape.group();
    std::vector<std::vector<double>> rows;  // labels of the group's queries
    for (int64_t row = 0; row < shape.group(); ++row) {
      const float* q = queries.q + (kv_head * shape.group() + row) * shape.head_dim;
      std::vector<float> label = picked(q, own.channels[kv_head]);
      const Quantised codes = label_bits_ < 16 ? quantise(label, label_bits_) : Quantised{};
      for (size_t c = 0; c < codes.codes.size(); ++c) label[c] = codes.number(c);
      rows.emplace_back(label.begin(), label.end());
    }
    std::vector<float> label(own.channels[kv_head].size());
    for (int64_t i = 0; i < n; ++i) {
      read(own.heads[kv_head], i, label);
      for (int64_t row = 0; row < shape.group(); ++row)
        scores[row * n + i] =
            static_cast<float>(std::inner_product(label.begin(), label.end(), rows[row].begin(), 0.0));
    }
  }

 private:
  static std::vector<float> picked(const float* from, const std::vector<int32_t>& channels) {
    std::vector<float> label;
    for (const int32_t channel : channels) label.push_back(from[channel]);
    return label;
  }
  [[nodiscard]] int64_t code_bytes(size_t labels) const { return (static_cast<int64_t>(labels) * label_bits_ + 7) / 8; }

  /// A prompt's labels take what they need and no more.
  void reserve(Labels& labels, int64_t count, size_t channels) const {
    const auto entries = static_cast<size_t>(count);
    if (label_bits_ < 16) labels.codes.reserve(entries * static_cast<size_t>(code_bytes(channels)));
    labels.ranges.reserve(entries * (label_bits_ < 16 ? 2 : channels));
  }

  void append(LabelIndex& index, int64_t head, const float* key) const {
    Labels& to = index.heads[head];
    const std::vector<float> label = picked(key, index.channels[head]);
    if (label_bits_ == 16) {
      to.ranges.insert(to.ranges.end(), label.begin(), label.end());
      return;
    }
    const Quantised codes = quantise(label, label_bits_);
    const size_t first = to.codes.size();
    to.codes.resize(first + static_cast<size_t>(code_bytes(label.size())));
    for (size_t c = 0; c < label.size(); ++c) {
      const size_t bit = c * static_cast<size_t>(label_bits_);
      to.codes[first + bit / 8] |= static_cast<uint8_t>(codes.codes[c] << (bit % 8));
    }
    to.ranges.insert(to.ranges.end(), {codes.low, codes.levels});
  }

  /// The label of an entry.
  void read(const Labels& labels, int64_t entry, std::vector<float>& label) const {
    const auto channels = std::ssize(label);
    if (label_bits_ == 16) {
      std::copy_n(labels.ranges.begin() + entry * channels, channels, label.begin());
      return;
    }
    const uint8_t* codes = labels.codes.data() + entry * code_bytes(label.size());
    const float low = labels.ranges[entry * 2];
    const float levels = labels.ranges[entry * 2 + 1];
    const unsigned mask = (1U << label_bits_) - 1;
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t bit = c * label_bits_;
      const unsigned code = (codes[bit / 8] >> (bit % 8)) & mask;
      label[c] = static_cast<float>(code) / levels + low;
    }
  }

  [[nodiscard]] at::Tensor of_fit(const LayerView& view) const {
    const auto weights = view.model().fitted({.method = "double_sparsity", .variant = {}, .path = weights_});
    return tensor_of(weights->at(fmt::format("layers.{}.channels", view.layer()), {view.kv_heads(), view.head_dim()}));
  }

  int64_t group_factor_ = 8;
  int64_t label_bits_ = 4;
  std::string ranking_ = "fitted";
  std::string weights_;
};

KVARENA_RETRIEVER(DoubleSparsity, {.name = "double_sparsity",
                                   .title = "Double Sparsity",
                                   .summary = "Ranks entries by a few channels of their keys in a few bits.",
                                   .paper = "arXiv:2408.07092, section 3"});

}  // namespace
}  // namespace kvarena
