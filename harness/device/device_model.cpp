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

/// [layers] devices; device 0 where nothing is said.
std::vector<int64_t> devices_or_first(const ModelConfig& config, std::vector<int64_t> devices) {
  if (devices.empty()) devices.assign(static_cast<size_t>(config.layers), 0);
  KVARENA_ASSERT(std::ssize(devices) == config.layers, fmt::format("{} devices of layers", devices.size()));
  return devices;
}

}  // namespace

DeviceModel::Impl::Impl(const ModelConfig& c, const TransformerOptions& o, std::span<const int64_t> devices,
                        DeviceWeights w)
    : config(c), options(o), weights(std::move(w)), rope(rope_frequencies(c)) {
  if (config.is_latent()) rope.magnitude = 1;  // queries take it: stored keys are turned by plain angles
  for (int64_t layer = 0; layer < config.layers; ++layer)
    shapes.push_back({cache_shape(config, layer, options.cache), devices[static_cast<size_t>(layer)]});
  for (int64_t begin = 0; begin < config.layers;) {
    int64_t end = begin;
    while (end < config.layers && shapes[end].device == shapes[begin].device) ++end;
    const kernels::CudaDeviceScope here(shapes[begin].device);
    if (!stages.empty()) kernels::cuda_connect(stages.back()->device);
    stages.push_back(std::make_unique<Stage>(*this, begin, end));
    begin = end;
  }
}

DeviceModel::Stage::Stage(const Impl& model, int64_t first, int64_t behind)
    : device(model.shapes[first].device),
      begin(first),
      end(behind),
      config(model.config),
      options(model.options),
      weights(model.weights),
      rope(model.rope),
      shapes(model.shapes),
      attention(config),
      feed_forward(config) {}

void DeviceModel::Impl::check(std::span<const DevicePass> batch) const {
  for (const DevicePass& pass : batch) {
    KVARENA_ASSERT(!pass.tokens.empty() && (pass.cache != nullptr) != (pass.host != nullptr),
                   "a sequence without tokens, or without one cache");
    KVARENA_ASSERT(pass.choice == nullptr || (pass.cache != nullptr && pass.attended == nullptr &&
                                              pass.parents.empty() && pass.cache->placement() == Placement::device),
                   "a choice among what is not all there");
    KVARENA_ASSERT(pass.attended == nullptr || std::ssize(*pass.attended) == shapes.front().kv_heads,
                   "a list for each kv head");
    check_tokens(config, pass.tokens);
    if (pass.host != nullptr) {
      check_window(config, std::ranges::max(pass.host->positions()) + 1);
      continue;
    }
    check_window(config, pass.cache->length() + std::ssize(pass.tokens));
    KVARENA_ASSERT(pass.whole == nullptr || (pass.attended != nullptr && std::ssize(*pass.whole) == config.layers &&
                                             pass.cache->placement() == Placement::device),
                   "layers that attend to everything where all do, or where windows hold what is chosen");
    const bool windows = std::ranges::any_of(shapes, [](const LayerShape& s) { return s.window > 0; });
    KVARENA_ASSERT(
        pass.parents.empty() || (pass.parents.size() == pass.tokens.size() && pass.attended == nullptr &&
                                 pass.cache->full() && pass.cache->placement() == Placement::device && !windows),
        "a tree over what is not all there");
    bool chosen_in_windows = false;
    for (size_t layer = 0; layer < shapes.size(); ++layer)
      chosen_in_windows = chosen_in_windows || (shapes[layer].window > 0 && !Stage::sees_all(pass, layer));
    if (chosen_in_windows) {
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

void DeviceModel::Impl::grow(std::span<const DevicePass> batch) const {
  for (const DevicePass& pass : batch) {
    if (pass.cache == nullptr) continue;
    const int64_t fresh = std::ssize(pass.tokens), needed = pass.cache->length() + fresh;
    if (needed > pass.cache->capacity()) synchronize();
    pass.cache->reserve(needed);
    pass.cache->choose(pass.attended, fresh);
  }
}

DeviceModel::Stage& DeviceModel::Impl::stage_of(int64_t layer) const {
  return **std::ranges::find_if(stages, [&](const auto& stage) { return layer < stage->end; });
}

void DeviceModel::Impl::synchronize() const {
  for (const auto& stage : stages) kernels::cuda_synchronize(stage->compute.stream());
}

void DeviceModel::Stage::prepare(std::span<const DevicePass> batch) {
  sequences.clear();
  rows = 0;
  int64_t listed = 0;
  for (const DevicePass& pass : batch) {
    const int64_t fresh = std::ssize(pass.tokens);
    const int64_t before = pass.cache != nullptr ? pass.cache->length() : 0;
    Sequence& s = sequences.emplace_back(Sequence{{}, &pass, pass.cache, rows, fresh, before + fresh, listed});
    if (pass.cache != nullptr && !pass.parents.empty()) {
      s.shared = entries_before_paths(before);
      for (int64_t row = 0; row < fresh; ++row) s.paths.push_back(tree_path(pass.parents, row, before, s.shared));
    }
    rows += fresh;
    for (const std::vector<int32_t>& list : lists(s)) listed += std::ssize(list);
  }
}

/// Tokens, lengths, rotations and lists to the device.
void DeviceModel::Stage::tell() {
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
void DeviceModel::Stage::list_kept() {
  std::vector<int32_t> all;
  for (Sequence& s : sequences) {
    if (s.cache == nullptr || !s.cache->any_dropped()) continue;
    s.kept.resize(static_cast<size_t>(until));
    for (int64_t layer = begin; layer < until; ++layer) {
      std::vector<IndexList>& lists = s.kept[static_cast<size_t>(layer)];
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

void DeviceModel::Stage::make_room(Download bring, int64_t first_layer, int64_t layers) {
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
                    {.first_layer = first_layer,
                     .layers = layers,
                     .rows = rows,
                     .q_heads = config.q_heads,
                     .hidden_size = config.hidden_size,
                     .attention = attention.layout()},
                    moves);
  feed_forward.make_room(rows, moves);
  if (end == config.layers) logits.at_least(wanted_rows() * config.vocab_size, moves);
}

void DeviceModel::Stage::normalise(const float* from, const DeviceVector& weight, float* to, int64_t count) {
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

void DeviceModel::Stage::mlp_block(int64_t layer) {
  const DeviceLayerWeights& w = weights.layers[layer];
  normalise(x.data(), w.mlp_norm, normed.data(), rows);
  std::visit([&](const auto& mlp) { feed_forward.add(mlp, normed.data(), rows, x.data(), compute.stream()); }, w.mlp);
}

/// Final norm and head over the rows whose logits are wanted; neighbours go through the norm together.
void DeviceModel::Stage::head() {
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
void DeviceModel::Stage::predict(int64_t count) {
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

std::span<const float> DeviceModel::Stage::download(const DeviceLogits& made) {
  const int64_t floats = made.rows * config.vocab_size;
  if (floats == 0) return {};
  answer.at_least(floats);
  kernels::cuda_download(answer.data(), made.data, floats * 4, compute.stream());
  kernels::cuda_synchronize(compute.stream());
  return {answer.data(), static_cast<size_t>(floats)};
}

/// The residual stream of the stage before, which goes on when it is here.
void DeviceModel::Stage::receive(Stage& before) {
  before.computed.record(before.compute.stream());
  before.computed.hold(compute.stream());
  kernels::cuda_copy(x.data(), before.x.data(), rows * config.hidden_size * 4, compute.stream());
  received.record(compute.stream());
  received.hold(before.compute.stream());
}

void DeviceModel::Stage::run(kernels::CudaScratch& with, bool recorded) {
  const bool over_the_bus = (any_on_host() || any_chooses(/*known_ones=*/true)) && begin < until;
  if (begin == 0) {
    weights.embedding.gather_rows(told.tokens, rows, x.data(), config.hidden_size, compute.stream());
  }
  if (over_the_bus) {
    begun.record(compute.stream());  // behind everything that an earlier pass stored or attended to
    begun.hold(bus.stream());
    fetch(begin);
  }
  for (int64_t layer = begin; layer < until; ++layer) {
    if (over_the_bus) {
      take_ahead();
      if (layer + 1 < until) fetch(layer + 1);
      fetched[static_cast<size_t>(layer % 2)].hold(compute.stream());
    }
    for (const Sequence& s : sequences) {
      if (s.pass->arrive) s.pass->arrive(layer);
    }
    attention_block(layer, with);
    if (over_the_bus) attended[static_cast<size_t>(layer % 2)].record(compute.stream());
    mlp_block(layer);
    brought.bring_residual(layer, x.data(), compute.stream());
    if (!recorded) brought.queued(layer, compute.stream());
  }
  if (end == config.layers) head();
}

/// The key under which a recorded step may be replayed; empty when the pass is not one.
std::vector<int64_t> DeviceModel::Stage::key_of_step() const {
  if (config.expert.experts > 0) return {};
  std::vector<int64_t> key{until, moves, inputs.moves(), static_cast<int64_t>(brought.what())};
  for (const Sequence& s : sequences) {
    if (s.cache == nullptr || s.rows != 1 || on_host(s) || !s.paths.empty()) return {};
    if (s.pass->choice != nullptr || s.pass->arrive || s.cache->any_dropped()) return {};
    const DeviceCache& cache = *s.cache;
    const int64_t most = std::min(cache.capacity(), (cache.length() / kRecordedLengths + 1) * kRecordedLengths);
    key.insert(key.end(), {cache.id_, cache.moves_, most, wanted_rows(s), s.pass->codes_alone ? 1 : 0});
  }
  for (const Sequence& s : sequences) {
    for (int64_t layer = begin; layer < until; ++layer) key.push_back(sees_all(*s.pass, layer) ? 0 : 1);
    for (const std::vector<int32_t>& list : lists(s)) key.push_back(std::ssize(list));
  }
  return key;
}

void DeviceModel::Stage::run_or_replay(bool recording) {
  const std::vector<int64_t> key = recording ? key_of_step() : std::vector<int64_t>{};
  steps.run(key, scratch, compute.stream(), [&](kernels::CudaScratch& with, bool recorded) {
    for (size_t i = 0; recorded && i < sequences.size(); ++i)
      sequences[i].most = key[kPassKey + i * kSequenceKey + kMostInKey];
    run(with, recorded);
  });
  brought.queued(compute.stream());
}

void DeviceModel::Stage::pass(std::span<const DevicePass> batch, Download bring, int64_t depth, Stage* before,
                              bool recording) {
  until = std::clamp(depth, begin, end);
  prepare(batch);
  tell();
  list_kept();
  KVARENA_ASSERT(bring == Download::everything || !waits_for_host(), "rows that the host was not brought");
  make_room(bring, begin, until - begin);
  if (before != nullptr) receive(*before);
  run_or_replay(recording);
}

DeviceModel::DeviceModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceModel::DeviceModel(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options,
                         std::vector<int64_t> devices) {
  devices = devices_or_first(config, std::move(devices));
  impl_ = std::make_unique<Impl>(config, options, devices,
                                 load_device_weights(config, checkpoint, options.weights.value(), devices));
}
DeviceModel DeviceModel::random(const ModelConfig& config, const TransformerOptions& options, uint64_t seed,
                                std::vector<int64_t> devices) {
  devices = devices_or_first(config, std::move(devices));
  return DeviceModel(std::make_unique<Impl>(config, options, devices,
                                            random_device_weights(config, options.weights.value(), seed, devices)));
}
DeviceModel::~DeviceModel() = default;
DeviceModel::DeviceModel(DeviceModel&&) noexcept = default;

const ModelConfig& DeviceModel::config() const { return impl_->config; }
const std::vector<PlacedLayer>& DeviceModel::shapes() const { return impl_->shapes; }
DeviceCache DeviceModel::make_cache(Placement placement, int64_t entries) const {
  return {impl_->shapes, placement, entries};
}
DeviceCache DeviceModel::to_device(const KvCache& cache, int64_t tokens) const {
  return {impl_->shapes, cache, tokens, RecycledCache{}, impl_->config.layers};
}
int64_t DeviceModel::weight_bytes() const { return impl_->weights.matrix_bytes; }
void DeviceModel::synchronize() const { impl_->synchronize(); }
kernels::CudaStream DeviceModel::stream() const { return impl_->last().compute.stream(); }
void DeviceModel::record_steps(bool on) { impl_->recording = on; }
int64_t DeviceModel::replayed() const { return impl_->stages.front()->steps.replayed(); }
int64_t DeviceModel::slot_bytes() const {
  int64_t bytes = 0;
  for (const auto& stage : impl_->stages) bytes += stage->slot_bytes;
  return bytes;
}

DeviceLogits DeviceModel::forward(std::span<const DevicePass> batch, Download bring, int64_t layers) {
  Impl& m = *impl_;
  KVARENA_ASSERT(layers >= 0 && layers <= m.config.layers, fmt::format("{} layers", layers));
  m.check(batch);
  if (batch.empty()) return {};
  const int64_t depth = layers > 0 ? layers : m.config.layers;
  m.grow(batch);
  Stage* before = nullptr;
  for (const auto& stage : m.stages) {
    if (stage->begin >= depth && stage != m.stages.back()) continue;  // which has the head
    const kernels::CudaDeviceScope here(stage->device);
    stage->pass(batch, bring, depth, before, m.recording);
    before = stage.get();
  }
  for (const DevicePass& pass : batch) {
    if (pass.cache != nullptr) pass.cache->advance(std::ssize(pass.tokens));
  }
  return {m.last().logits.data(), m.last().wanted_rows()};
}

float DeviceModel::query_factor() const {
  return impl_->config.is_latent() ? impl_->last().attention.scale() / attention_scale(impl_->last().shape()) : 1.0F;
}
LayerRows DeviceModel::brought(int64_t layer, int64_t first) const {
  const DownloadedRows& rows = impl_->stage_of(layer).brought;
  rows.wait(layer);
  return rows.layer(layer, first);
}

std::span<const float> DeviceModel::download(const DeviceLogits& logits) {
  const kernels::CudaDeviceScope here(impl_->last().device);
  return impl_->last().download(logits);
}

std::vector<int32_t> DeviceModel::largest(const DeviceLogits& logits) {
  const kernels::CudaDeviceScope here(impl_->last().device);
  return impl_->last().largest(logits);
}

std::vector<int32_t> DeviceModel::Stage::largest(const DeviceLogits& made) {
  if (made.rows == 0) return {};
  best.reserve(made.rows * 4);
  auto* index = static_cast<int32_t*>(best.data());
  kernels::argmax_rows_cuda(made.data, made.rows, config.vocab_size, config.vocab_size, index, compute.stream());
  std::vector<int32_t> tokens(static_cast<size_t>(made.rows));
  kernels::cuda_download(tokens.data(), index, made.rows * 4, compute.stream());
  kernels::cuda_synchronize(compute.stream());
  if (std::ranges::find(tokens, -1) != tokens.end()) {
    fail({.place = "logits",
          .found = "not a number",
          .expected = "finite logits",
          .action = "the checkpoint holds values that overflow"});
  }
  return tokens;
}

}  // namespace kvarena::device
