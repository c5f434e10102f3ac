#include "harness/device/device_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/tree_view.h"
#include "harness/core/error.h"
#include "harness/device/device_model_impl.h"
#include "harness/device/device_products.h"
#include "harness/model/attention_projections.h"
#include "harness/model/pass_checks.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/top_k/top_k_cuda.h"

namespace kvarena::device {
namespace {

/// Lengths are recorded in steps of so many entries: what a graph's launches are made for.
constexpr int64_t kRecordedLengths = 4096;

/// Numbers in a recorded step's key: of the pass, of each sequence, and where in the latter stands what its length may
/// come to be.
constexpr size_t kPassKey = 4, kSequenceKey = 5, kMostInKey = 2;

}  // namespace

DeviceModel::Impl::Impl(const ModelConfig& c, const TransformerOptions& o, DeviceWeights w)
    : config(c), options(o), weights(std::move(w)), rope(rope_frequencies(c)), attention(config), feed_forward(config) {
  for (int64_t layer = 0; layer < config.layers; ++layer) shapes.push_back(cache_shape(config, layer, options.cache));
  if (config.is_latent()) rope.magnitude = 1;  // queries take it: stored keys are turned by plain angles
}

void DeviceModel::Impl::check(std::span<const DevicePass> batch) const {
  for (const DevicePass& pass : batch) {
    KVARENA_ASSERT(!pass.tokens.empty() && (pass.cache != nullptr) != (pass.host != nullptr),
                   "a sequence without tokens, or without one cache");
    KVARENA_ASSERT(pass.choice == nullptr || (pass.cache != nullptr && pass.attended == nullptr &&
                                              pass.parents.empty() && pass.cache->placement() == Placement::device),
                   "a choice among what is not all there");
    KVARENA_ASSERT(pass.attended == nullptr || std::ssize(*pass.attended) == shape().kv_heads,
                   "a list for each kv head");
    check_tokens(config, pass.tokens);
    if (pass.host != nullptr) {
      check_window(config, std::ranges::max(pass.host->positions()) + 1);
      continue;
    }
    check_window(config, pass.cache->length() + std::ssize(pass.tokens));
    const bool windows = std::ranges::any_of(shapes, [](const LayerShape& s) { return s.window > 0; });
    KVARENA_ASSERT(
        pass.parents.empty() || (pass.parents.size() == pass.tokens.size() && pass.attended == nullptr &&
                                 pass.cache->full() && pass.cache->placement() == Placement::device && !windows),
        "a tree over what is not all there");
    if (pass.attended != nullptr && windows) {
      fail({.place = fmt::format("{} on the device", config.name),
            .found = "chosen positions and a sliding window",
            .expected = "layers that see every entry"});
    }
    if (pass.attended != nullptr && !pass.cache->full()) {
      fail({.place = fmt::format("{} on the device", config.name),
            .found = "chosen positions of a cache from which entries were dropped, or in which some are packed",
            .expected = "a cache with every token's entry in 16 or 32 bits"});
    }
  }
}

void DeviceModel::Impl::prepare(std::span<const DevicePass> batch) {
  sequences.clear();
  rows = 0;
  int64_t listed = 0;
  for (const DevicePass& pass : batch) {
    const int64_t fresh = std::ssize(pass.tokens);
    const int64_t before = pass.cache != nullptr ? pass.cache->length() : 0;
    if (pass.cache != nullptr) {
      pass.cache->reserve(before + fresh, compute.stream());
      pass.cache->choose(pass.attended, fresh);
    }
    Sequence& s = sequences.emplace_back(Sequence{&pass, pass.cache, rows, fresh, before + fresh, listed});
    if (pass.cache != nullptr && !pass.parents.empty()) {
      s.shared = entries_before_paths(before);
      for (int64_t row = 0; row < fresh; ++row) s.paths.push_back(tree_path(pass.parents, row, before, s.shared));
    }
    rows += fresh;
    for (const std::vector<int32_t>& list : lists(s)) listed += std::ssize(list);
  }
}

/// Tokens, lengths, rotations and lists to the device.
void DeviceModel::Impl::tell() {
  const Sequence& last = sequences.back();
  int64_t listed = last.first_list;
  for (const std::vector<int32_t>& list : lists(last)) listed += std::ssize(list);
  const InputBuffer::Host to = inputs.room(
      {.rows = rows, .sequences = std::ssize(sequences), .half = config.rotary_dim() / 2, .listed = listed});
  std::vector<int32_t> positions;
  std::vector<int64_t> prompts;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const DevicePass& pass = *sequences[s].pass;
    std::ranges::copy(pass.tokens, to.tokens.begin() + sequences[s].first_row);
    if (pass.host != nullptr) {
      positions.insert(positions.end(), pass.host->positions().begin(), pass.host->positions().end());
      prompts.insert(prompts.end(), pass.tokens.size(), pass.host->prompt_length());
      continue;
    }
    to.before[s] = static_cast<int32_t>(pass.cache->length());
    append_positions(pass.cache->length(), sequences[s].rows, pass.parents, positions);
    prompts.insert(prompts.end(), pass.tokens.size(), pass.cache->prompt_length);
    auto at = to.lists.begin() + sequences[s].first_list;
    for (const std::vector<int32_t>& list : lists(sequences[s])) at = std::ranges::copy(list, at).out;
  }
  rotation_rows(config, rope, positions, prompts, to.cos, to.sin);
  told = inputs.tell(compute.stream());
}

/// Uploads lists of what is left of runs from which entries were dropped.
void DeviceModel::Impl::list_kept() {
  std::vector<int32_t> all;
  for (Sequence& s : sequences) {
    if (s.cache == nullptr || !s.cache->any_dropped()) continue;
    for (int64_t layer = 0; layer < depth; ++layer) {
      std::vector<IndexList>& lists = s.kept.emplace_back();
      for (int64_t head = 0; head < std::ssize(s.cache->kept(layer)); ++head) {
        const std::vector<int32_t>& kept = s.cache->kept(layer)[static_cast<size_t>(head)];
        all.insert(all.end(), kept.begin(), kept.end());
        for (int64_t i = 0; i < s.rows; ++i) all.push_back(static_cast<int32_t>(s.cache->entries(layer, head) + i));
        lists.push_back({.entries = nullptr, .count = std::ssize(kept) + s.rows});
      }
    }
  }
  if (all.empty()) return;
  const auto* at = static_cast<const int32_t*>(kept_lists.upload(all.data(), std::ssize(all) * 4, compute.stream()));
  for (Sequence& s : sequences) {
    for (std::vector<IndexList>& layer : s.kept) at = IndexList::place(layer, at);
  }
}

/// Memory for the pass; returns how many rows of logits are wanted.
int64_t DeviceModel::Impl::make_room(Download bring) {
  const int64_t wanted = wanted_rows();
  x.at_least(rows * config.hidden_size, moves);
  normed.at_least(rows * config.hidden_size, moves);
  attention.make_room(rows, moves);
  seen.at_least(rows * config.q_heads * shape().head_dim, moves);
  running.at_least(2 * rows * config.q_heads, moves);
  if (bring == Download::everything) lse.at_least(rows * config.q_heads, moves);
  if (any_mapped()) {
    mapped.at_least(rows * config.q_heads * shape().head_dim, moves);
    own.at_least(rows * config.q_heads * (shape().head_dim + 2), moves);
  }
  dequantized_at_once = most_dequantized();
  dequantized.at_least(DequantWorkspace::numbers(dequantized_at_once, shape()), moves);
  if (any_attends_on_host()) host_seen.at_least(rows * config.q_heads * shape().head_dim);
  brought.make_room(bring,
                    {.layers = depth,
                     .rows = rows,
                     .q_heads = config.q_heads,
                     .hidden_size = config.hidden_size,
                     .attention = attention.layout()},
                    moves);
  feed_forward.make_room(rows, moves);
  logits.at_least(wanted * config.vocab_size, moves);
  return wanted;
}

void DeviceModel::Impl::normalise(const float* from, const DeviceVector& weight, float* to, int64_t count) {
  kernels::rms_norm_cuda({.x = from,
                          .weight = weight.data(),
                          .y = to,
                          .rows = count,
                          .n = config.hidden_size,
                          .x_stride = config.hidden_size,
                          .y_stride = config.hidden_size,
                          .eps = static_cast<float>(config.rms_norm_eps)},
                         compute.stream());
}

void DeviceModel::Impl::mlp_block(int64_t layer) {
  const DeviceLayerWeights& w = weights.layers[layer];
  normalise(x.data(), w.mlp_norm, normed.data(), rows);
  std::visit([&](const auto& mlp) { feed_forward.add(mlp, normed.data(), rows, x.data(), compute.stream()); }, w.mlp);
}

/// Final norm and head over the rows whose logits are wanted; neighbours go through the norm together.
void DeviceModel::Impl::head() {
  const int64_t hidden = config.hidden_size;
  int64_t wanted = 0, first = 0, count = 0;
  const auto flush = [&] {
    if (count > 0) normalise(x.data() + first * hidden, weights.final_norm, normed.data() + wanted * hidden, count);
    wanted += count;
    count = 0;
  };
  for (const Sequence& s : sequences) {
    const int64_t taken = wanted_rows(s), begin = s.first_row + s.rows - taken;
    if (taken == 0) continue;
    if (begin != first + count) {
      flush();
      first = begin;
    }
    count += taken;
  }
  flush();
  predict(wanted);
}

/// Logits of the first rows in `normed`.
void DeviceModel::Impl::predict(int64_t count) {
  if (weights.lm_head) {
    return project(*weights.lm_head, normed.data(), count, logits.data(), /*add=*/false, compute.stream());
  }
  kernels::matmul_cuda({.x = normed.data(),
                        .m = count,
                        .x_stride = config.hidden_size,
                        .w = &weights.embedding,
                        .y = logits.data(),
                        .y_stride = config.vocab_size},
                       compute.stream());
}

void DeviceModel::Impl::synchronize() const {
  kernels::cuda_synchronize(compute.stream());
  if (ranks != nullptr) ranks->confirm();
}

std::span<const float> DeviceModel::Impl::download(const DeviceLogits& made) {
  const int64_t floats = made.rows * config.vocab_size;
  if (floats == 0) return {};
  answer.at_least(floats);
  kernels::cuda_download(answer.data(), made.data, floats * 4, compute.stream());
  synchronize();
  return {answer.data(), static_cast<size_t>(floats)};
}

void DeviceModel::Impl::run(kernels::CudaScratch& with) {
  const bool over_the_bus = any_on_host();
  // Whoever attends on the host may fail there, and the pass ends in its middle.
  if (ranks != nullptr) {
    ranks->begin({.layers = depth, .rows = rows, .wanted = wanted_rows()}, /*may_be_given_up=*/waits_for_host());
  }
  weights.embedding.gather_rows(told.tokens, rows, x.data(), config.hidden_size, compute.stream());
  if (over_the_bus) {
    begun.record(compute.stream());  // behind everything that an earlier pass stored or attended to
    begun.hold(bus.stream());
    fetch(0);
  }
  for (int64_t layer = 0; layer < depth; ++layer) {
    if (over_the_bus) {
      if (layer + 1 < depth) fetch(layer + 1);
      fetched[static_cast<size_t>(layer % 2)].hold(compute.stream());
    }
    attention_block(layer, with);
    if (over_the_bus) attended[static_cast<size_t>(layer % 2)].record(compute.stream());
    mlp_block(layer);
    brought.bring_residual(layer, x.data(), compute.stream());
  }
  head();
}

/// The key under which a recorded step may be replayed; empty when the pass is not one.
std::vector<int64_t> DeviceModel::Impl::key_of_step() const {
  if (config.expert.experts > 0 || ranks != nullptr) return {};
  std::vector<int64_t> key{depth, moves, inputs.moves(), static_cast<int64_t>(brought.what())};
  for (const Sequence& s : sequences) {
    if (s.cache == nullptr || s.rows != 1 || on_host(s) || s.cache->chosen_ || !s.paths.empty()) return {};
    if (s.pass->choice != nullptr || s.cache->any_dropped()) return {};
    const DeviceCache& cache = *s.cache;
    const int64_t most = std::min(cache.capacity(), (cache.length() / kRecordedLengths + 1) * kRecordedLengths);
    key.insert(key.end(), {cache.id_, cache.moves_, most, wanted_rows(s), s.pass->codes_alone ? 1 : 0});
  }
  return key;
}

void DeviceModel::Impl::run_or_replay() {
  const std::vector<int64_t> key = recording ? key_of_step() : std::vector<int64_t>{};
  steps.run(key, scratch, compute.stream(), [&](kernels::CudaScratch& with, bool recorded) {
    for (size_t i = 0; recorded && i < sequences.size(); ++i)
      sequences[i].most = key[kPassKey + i * kSequenceKey + kMostInKey];
    run(with);
  });
}

DeviceModel::DeviceModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceModel::DeviceModel(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options,
                         RankDriver* ranks)
    : DeviceModel(std::make_unique<Impl>(config, options,
                                         load_device_weights(config, checkpoint, options.weights,
                                                             ranks != nullptr ? ranks->channel().share() : Share{}))) {
  if (ranks != nullptr) impl_->ranks = std::make_unique<DeviceDriver>(*ranks, impl_->weights);
}
DeviceModel DeviceModel::random(const ModelConfig& config, const TransformerOptions& options, uint64_t seed) {
  return DeviceModel(std::make_unique<Impl>(config, options, random_device_weights(config, options.weights, seed)));
}
DeviceModel::~DeviceModel() = default;
DeviceModel::DeviceModel(DeviceModel&&) noexcept = default;

const ModelConfig& DeviceModel::config() const { return impl_->config; }
const std::vector<LayerShape>& DeviceModel::shapes() const { return impl_->shapes; }
DeviceCache DeviceModel::make_cache(Placement placement, int64_t entries) const {
  return {impl_->shapes, placement, entries};
}
DeviceCache DeviceModel::to_device(const KvCache& cache, int64_t tokens) const {
  return {impl_->shapes, cache, tokens, RecycledCache{}, impl_->config.layers};
}
int64_t DeviceModel::weight_bytes() const { return impl_->weights.matrix_bytes; }
void DeviceModel::synchronize() const { impl_->synchronize(); }
std::string DeviceModel::fallback_reason() const {
  return impl_->ranks != nullptr ? impl_->ranks->fallback_reason() : "";
}
kernels::CudaStream DeviceModel::stream() const { return impl_->compute.stream(); }
void DeviceModel::record_steps(bool on) { impl_->recording = on; }
int64_t DeviceModel::replayed() const { return impl_->steps.replayed(); }

DeviceLogits DeviceModel::forward(std::span<const DevicePass> batch, Download bring, int64_t layers) {
  Impl& m = *impl_;
  KVARENA_ASSERT(layers >= 0 && layers <= m.config.layers, fmt::format("{} layers", layers));
  m.check(batch);
  if (batch.empty()) return {};
  m.depth = layers > 0 ? layers : m.config.layers;
  m.prepare(batch);
  m.tell();
  m.list_kept();
  KVARENA_ASSERT(bring == Download::everything || !m.waits_for_host(), "rows that the host was not brought");
  const int64_t wanted = m.make_room(bring);
  m.run_or_replay();
  for (const Impl::Sequence& s : m.sequences) {
    if (s.cache != nullptr) s.cache->advance(s.rows);
  }
  return {m.logits.data(), wanted};
}

float DeviceModel::query_factor() const {
  return impl_->config.is_latent() ? impl_->attention.scale() / attention_scale(impl_->shape()) : 1.0F;
}
LayerRows DeviceModel::brought(int64_t layer, int64_t first) const { return impl_->brought.layer(layer, first); }

std::span<const float> DeviceModel::download(const DeviceLogits& logits) { return impl_->download(logits); }

std::vector<int32_t> DeviceModel::largest(const DeviceLogits& logits) {
  Impl& m = *impl_;
  if (logits.rows == 0) return {};
  m.best.reserve(logits.rows * 4);
  auto* index = static_cast<int32_t*>(m.best.data());
  kernels::argmax_rows_cuda(logits.data, logits.rows, m.config.vocab_size, m.config.vocab_size, index,
                            m.compute.stream());
  std::vector<int32_t> tokens(static_cast<size_t>(logits.rows));
  kernels::cuda_download(tokens.data(), index, logits.rows * 4, m.compute.stream());
  synchronize();
  if (std::ranges::find(tokens, -1) != tokens.end()) {
    fail({.place = "logits",
          .found = "not a number",
          .expected = "finite logits",
          .action = "the checkpoint holds values that overflow"});
  }
  return tokens;
}

}  // namespace kvarena::device
