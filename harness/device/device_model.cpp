#include "harness/device/device_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "harness/core/error.h"
#include "harness/device/device_attention.h"
#include "harness/device/device_feed_forward.h"
#include "harness/device/device_weights.h"
#include "harness/device/recorded_steps.h"
#include "harness/device/step_inputs.h"
#include "harness/device/workspace.h"
#include "harness/model/attention_projections.h"
#include "harness/model/pass_checks.h"
#include "harness/model/rope_frequencies.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/top_k/top_k_cuda.h"

namespace kvarena::device {
namespace {

using kernels::CellKind;
using kernels::Cells;
using kernels::CudaStream;

/// One sequence of a pass under way.
struct Sequence {
  const DevicePass* pass = nullptr;
  DeviceCache* cache = nullptr;  // null where the host attends
  int64_t first_row = 0, rows = 0;
  int64_t most = 0;        // entries that a run may come to have while the pass is replayed
  int64_t first_list = 0;  // where its lists begin among all
};

/// Lengths are recorded in steps of so many entries: what a graph's launches are made for.
constexpr int64_t kRecordedLengths = 4096;

}  // namespace

struct DeviceModel::Impl {
  ModelConfig config;
  TransformerOptions options;
  DeviceWeights weights;
  RopeFrequencies rope;
  std::vector<LayerShape> shapes;  // [layers]

  kernels::CudaQueue compute, bus;
  kernels::CudaScratch scratch, bus_scratch;
  kernels::CudaMark begun;                    // of a pass, on `compute`
  std::array<kernels::CudaMark, 2> fetched;   // of a layer's windows, on `bus`
  std::array<kernels::CudaMark, 2> attended;  // the same, on `compute`
  InputBuffer inputs;
  StepInputs told;
  BroughtRows brought;
  int64_t moves = 0;
  int64_t rows = 0;          // R, of the pass under way
  Workspace x;               // [R, hidden_size], the residual stream
  Workspace normed;          // [R, hidden_size]
  Workspace seen;            // [R, q_heads, head_dim of the cache]
  Workspace running;         // [R, q_heads] maxima, then [R, q_heads] sums
  Workspace lse;             // [R, q_heads], when it is brought to the host
  Workspace logits;          // [wanted rows, vocab_size]
  kernels::CudaBuffer best;  // [wanted rows] of int32_t
  PinnedWorkspace answer;
  PinnedWorkspace host_seen;  // [R, q_heads, head_dim of the cache], of rows that attended on the host
  std::vector<Sequence> sequences;
  DeviceAttention attention;
  DeviceFeedForward feed_forward;

  bool recording = true;
  RecordedSteps steps;

  Impl(const ModelConfig& c, const TransformerOptions& o, DeviceWeights w)
      : config(c),
        options(o),
        weights(std::move(w)),
        rope(rope_frequencies(c)),
        attention(config),
        feed_forward(config) {
    for (int64_t layer = 0; layer < config.layers; ++layer) shapes.push_back(cache_shape(config, layer, options.cache));
    if (config.is_latent()) rope.magnitude = 1;  // queries take it: stored keys are turned by plain angles
  }

  /// Of every layer, but for their windows.
  [[nodiscard]] const LayerShape& shape() const { return shapes.front(); }

  void check(std::span<const DevicePass> batch) const;
  void prepare(std::span<const DevicePass> batch);
  void tell();
  int64_t make_room(Bring bring);
  void run(kernels::CudaScratch& with);
  void run_or_replay();
  [[nodiscard]] std::vector<int64_t> key_of_step() const;
  void fetch(int64_t layer);
  void append(int64_t layer, const AttentionRows& from, kernels::CudaScratch& with);
  void attend(int64_t layer, const AttentionRows& from, kernels::CudaScratch& with);
  void attend_fronts(int64_t layer, const AttentionRows& from, const kernels::AttentionState& all,
                     kernels::CudaScratch& with);
  [[nodiscard]] kernels::AttendArgs attend_args(std::span<const kernels::AttendProblem> problems) const;
  [[nodiscard]] kernels::AttendProblem problem_of(const Sequence& s, const AttentionRows& from,
                                                  const kernels::AttentionState& all) const;
  void attend_on_host(int64_t layer);
  void attention_block(int64_t layer, kernels::CudaScratch& with);
  void mlp_block(int64_t layer);
  void head();
  void normalise(const float* from, const DeviceVector& weight, float* to, int64_t count);
  [[nodiscard]] bool any_on_host() const {
    return std::ranges::any_of(sequences, [](const Sequence& s) { return on_host(s); });
  }
  /// Whether its entries come over the bus.
  [[nodiscard]] static bool on_host(const Sequence& s) {
    return s.cache != nullptr && s.cache->placement() == Placement::host;
  }
  /// Positions that it attends to, [kv_heads]; nothing where these are not chosen.
  [[nodiscard]] static std::span<const std::vector<int32_t>> lists(const Sequence& s) {
    return s.cache != nullptr ? s.cache->lists_ : std::span<const std::vector<int32_t>>{};
  }
  [[nodiscard]] bool any_attends_on_host() const {
    return std::ranges::any_of(sequences, [](const Sequence& s) { return s.cache == nullptr; });
  }
  [[nodiscard]] static int64_t wanted_rows(const Sequence& s) {
    return s.pass->logits == LogitsRows::all ? s.rows : s.pass->logits == LogitsRows::last ? 1 : 0;
  }
};

void DeviceModel::Impl::check(std::span<const DevicePass> batch) const {
  for (const DevicePass& pass : batch) {
    KVARENA_ASSERT(!pass.tokens.empty() && (pass.cache != nullptr) != (pass.host != nullptr),
                   "a sequence without tokens, or without one cache");
    KVARENA_ASSERT(pass.attended == nullptr || std::ssize(*pass.attended) == shape().kv_heads,
                   "a list for each kv head");
    check_tokens(config, pass.tokens);
    if (pass.host != nullptr) {
      check_window(config, std::ranges::max(pass.host->positions()) + 1);
      continue;
    }
    check_window(config, pass.cache->length() + std::ssize(pass.tokens));
    if (pass.attended != nullptr && std::ranges::any_of(shapes, [](const LayerShape& s) { return s.window > 0; })) {
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
    sequences.push_back({&pass, pass.cache, rows, fresh, before + fresh, listed});
    rows += fresh;
    for (const std::vector<int32_t>& list : lists(sequences.back())) listed += std::ssize(list);
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
    for (int64_t i = 0; i < sequences[s].rows; ++i) {
      positions.push_back(static_cast<int32_t>(pass.cache->length() + i));
      prompts.push_back(pass.cache->prompt_length);
    }
    auto at = to.lists.begin() + sequences[s].first_list;
    for (const std::vector<int32_t>& list : pass.cache->lists_) at = std::ranges::copy(list, at).out;
  }
  rotation_rows(config, rope, positions, prompts, to.cos, to.sin);
  told = inputs.tell(compute.stream());
}

/// Memory for the pass; returns how many rows of logits are wanted.
int64_t DeviceModel::Impl::make_room(Bring bring) {
  int64_t wanted = 0;
  for (const Sequence& s : sequences) wanted += wanted_rows(s);
  x.at_least(rows * config.hidden_size, moves);
  normed.at_least(rows * config.hidden_size, moves);
  attention.make_room(rows, moves);
  seen.at_least(rows * config.q_heads * shape().head_dim, moves);
  running.at_least(2 * rows * config.q_heads, moves);
  if (bring == Bring::everything) lse.at_least(rows * config.q_heads, moves);
  if (any_attends_on_host()) host_seen.at_least(rows * config.q_heads * shape().head_dim);
  brought.make_room(bring,
                    {.layers = config.layers,
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

/// Brings what layer `layer` attends to of caches on the host, on the bus' stream.
void DeviceModel::Impl::fetch(int64_t layer) {
  const size_t turn = static_cast<size_t>(layer % 2);
  if (layer >= 2) attended[turn].hold(bus.stream());  // layers share windows two by two when everything comes
  std::vector<kernels::EntryMerge> merges;
  for (const Sequence& s : sequences) {
    if (!on_host(s)) continue;
    DeviceCache& cache = *s.cache;
    DeviceCache::Window& to = cache.chosen_ ? cache.windows_.back() : cache.window(layer);
    const int32_t* sources = told.lists + s.first_list;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const Cells far = cache.cells(layer, h, kind);
        merges.push_back({.near = cache.chosen_ ? cache.cells(cache.window(layer), h, kind) : far,
                          .far = far,
                          .source = cache.chosen_ ? sources : nullptr,
                          .count = cache.counts_[h],
                          .to = cache.cells(to, h, kind)});
      }
      sources += std::ssize(cache.lists_[h]);
    }
    // The spare takes the layer's place and the layer's memory is the next spare: the bus comes to it after this.
    if (cache.chosen_) std::swap(cache.window(layer), cache.windows_.back());
  }
  kernels::merge_entries_cuda(merges, bus_scratch, bus.stream());
  fetched[turn].record(bus.stream());
}

void DeviceModel::Impl::append(int64_t layer, const AttentionRows& from, kernels::CudaScratch& with) {
  std::vector<kernels::RowStore> stores;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    if (s.cache == nullptr) continue;
    DeviceCache& cache = *s.cache;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const float* first = kind == CellKind::keys ? from.keys : from.values;
        kernels::RowStore store{.to = cache.cells(layer, h, kind),
                                .count = s.rows,
                                .rows = first + s.first_row * from.kv_stride + h * shape().head_dim,
                                .row_stride = from.kv_stride,
                                .before = told.before + i};
        store.position = -cache.dropped(layer)[h];
        stores.push_back(store);
        if (!on_host(s)) continue;
        store.to = cache.cells(cache.window(layer), h, kind);
        store.position = cache.counts_[h];
        store.before = nullptr;
        stores.push_back(store);
      }
    }
  }
  if (!stores.empty()) kernels::store_rows_cuda(stores, with, compute.stream());
}

/// A sequence's queries and its part of the state of all rows.
kernels::AttendProblem DeviceModel::Impl::problem_of(const Sequence& s, const AttentionRows& from,
                                                     const kernels::AttentionState& all) const {
  const int64_t d = shape().head_dim, first = s.first_row * config.q_heads;
  return {.q = from.q + s.first_row * from.q_stride,
          .q_len = s.rows,
          .q_token_stride = from.q_stride,
          .q_head_stride = d,
          .dtype = options.cache,
          .state = {.out = all.out + first * d, .max = all.max + first, .sum = all.sum + first}};
}

kernels::AttendArgs DeviceModel::Impl::attend_args(std::span<const kernels::AttendProblem> problems) const {
  return {.problems = problems,
          .q_heads = config.q_heads,
          .kv_heads = shape().kv_heads,
          .head_dim = shape().head_dim,
          .scale = attention.scale()};
}

/// The packed entries of all sequences; a sequence's own one after the other, since they go to one state.
void DeviceModel::Impl::attend_fronts(int64_t layer, const AttentionRows& from, const kernels::AttentionState& all,
                                      kernels::CudaScratch& with) {
  for (size_t turn = 0;; ++turn) {
    std::vector<kernels::AttendProblem> problems;
    for (const Sequence& s : sequences) {
      if (s.cache == nullptr || turn >= s.cache->fronts_[layer].size()) continue;
      problems.push_back(problem_of(s, from, all));
      problems.back().runs = s.cache->fronts_[layer][turn].runs();
    }
    if (problems.empty()) return;
    kernels::attend_cuda(attend_args(problems), with, compute.stream());
  }
}

void DeviceModel::Impl::attend(int64_t layer, const AttentionRows& from, kernels::CudaScratch& with) {
  const int64_t kv_heads = shape().kv_heads;
  std::vector<kernels::HeadRun> runs;
  runs.reserve(sequences.size() * static_cast<size_t>(kv_heads));
  std::vector<kernels::AttendProblem> problems;
  std::vector<kernels::RunGrowth> growth;
  const kernels::AttentionState all{
      .out = seen.data(), .max = running.data(), .sum = running.data() + rows * config.q_heads};
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    if (s.cache == nullptr) continue;
    DeviceCache& cache = *s.cache;
    const kernels::HeadRun* const first_run = runs.data() + runs.size();
    const bool indexed = cache.chosen_ && !on_host(s);
    const int32_t* index = told.lists + s.first_list;
    for (int64_t h = 0; h < kv_heads; ++h) {
      const auto data = [&](CellKind kind) {
        return on_host(s) ? cache.cells(cache.window(layer), h, kind).data : cache.cells(layer, h, kind).data;
      };
      const int64_t listed = std::ssize(cache.lists_[h]);
      runs.push_back({.keys = data(CellKind::keys),
                      .values = data(CellKind::values),
                      .entries = on_host(s) ? cache.counts_[h] + s.rows : s.most - cache.dropped(layer)[h],
                      .index = indexed ? index : nullptr,
                      .index_count = indexed ? listed : 0});
      index += listed;
    }
    kernels::AttendProblem& problem = problems.emplace_back(problem_of(s, from, all));
    problem.runs = first_run;
    problem.causal = true;
    problem.window = shapes[layer].window;
    const bool grows = !on_host(s) && !indexed;
    growth.push_back(grows ? kernels::RunGrowth{told.before + i, cache.dropped(layer).data()} : kernels::RunGrowth{});
  }
  if (problems.empty()) return;
  kernels::init_attention_cuda(all, rows, config.q_heads, shape().head_dim, compute.stream());
  attend_fronts(layer, from, all, with);
  kernels::attend_cuda(attend_args(problems), growth, with, compute.stream());
  float* const denominators = brought.what() == Bring::everything ? lse.data() : nullptr;
  kernels::finish_attention_cuda(all, rows, config.q_heads, shape().head_dim, denominators, compute.stream());
}

/// Rows of sequences without a cache go to the host; what it attended takes the place of what was not.
void DeviceModel::Impl::attend_on_host(int64_t layer) {
  if (!any_attends_on_host()) return;
  kernels::cuda_synchronize(compute.stream());
  const int64_t width = config.q_heads * shape().head_dim;
  for (const Sequence& s : sequences) {
    if (s.cache != nullptr) continue;
    float* const attended = host_seen.data() + s.first_row * width;
    s.pass->host->attend(layer, brought.layer(layer, s.first_row), attended);
    kernels::cuda_upload(seen.data() + s.first_row * width, attended, s.rows * width * 4, compute.stream());
  }
}

void DeviceModel::Impl::attention_block(int64_t layer, kernels::CudaScratch& with) {
  const DeviceLayerWeights& w = weights.layers[layer];
  const PassRows pass{.rows = rows, .cos = told.cos, .sin = told.sin, .stream = compute.stream()};
  normalise(x.data(), w.attention_norm, normed.data(), rows);
  std::visit(
      [&](const auto& kind) {
        const AttentionRows from = attention.input(kind, normed.data(), pass);
        append(layer, from, with);
        attend(layer, from, with);
        brought.bring_attention(layer, from, normed.data(), lse.data(), compute.stream());
        attend_on_host(layer);
        attention.output(kind, seen.data(), x.data(), pass);
      },
      w.attention);
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
  kernels::matmul_cuda({.x = normed.data(),
                        .m = wanted,
                        .x_stride = hidden,
                        .w = &weights.head(),
                        .y = logits.data(),
                        .y_stride = config.vocab_size},
                       compute.stream());
}

void DeviceModel::Impl::run(kernels::CudaScratch& with) {
  const bool over_the_bus = any_on_host();
  weights.embedding.gather_rows(told.tokens, rows, x.data(), config.hidden_size, compute.stream());
  if (over_the_bus) {
    begun.record(compute.stream());  // behind everything that an earlier pass stored or attended to
    begun.hold(bus.stream());
    fetch(0);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (over_the_bus) {
      if (layer + 1 < config.layers) fetch(layer + 1);
      fetched[static_cast<size_t>(layer % 2)].hold(compute.stream());
    }
    attention_block(layer, with);
    if (over_the_bus) attended[static_cast<size_t>(layer % 2)].record(compute.stream());
    mlp_block(layer);
    brought.bring_residual(layer, x.data(), compute.stream());
  }
  head();
}

/// What a recorded step may be replayed for; empty when the pass is not one.
std::vector<int64_t> DeviceModel::Impl::key_of_step() const {
  if (config.expert.experts > 0) return {};
  std::vector<int64_t> key{moves, inputs.moves(), static_cast<int64_t>(brought.what())};
  for (const Sequence& s : sequences) {
    if (s.cache == nullptr || s.rows != 1 || on_host(s) || s.cache->chosen_) return {};
    const DeviceCache& cache = *s.cache;
    const int64_t most = std::min(cache.capacity(), (cache.length() / kRecordedLengths + 1) * kRecordedLengths);
    key.insert(key.end(), {cache.id_, cache.moves_, most, wanted_rows(s)});
  }
  return key;
}

void DeviceModel::Impl::run_or_replay() {
  const std::vector<int64_t> key = recording ? key_of_step() : std::vector<int64_t>{};
  steps.run(key, scratch, compute.stream(), [&](kernels::CudaScratch& with, bool recorded) {
    for (size_t i = 0; recorded && i < sequences.size(); ++i) sequences[i].most = key[3 + 4 * i + 2];
    run(with);
  });
}

DeviceModel::DeviceModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceModel::DeviceModel(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options)
    : DeviceModel(std::make_unique<Impl>(config, options, load_device_weights(config, checkpoint, options.weights))) {}
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
DeviceCache DeviceModel::to_device(const KvCache& cache, int64_t tokens, std::optional<DeviceCache> former) const {
  return {impl_->shapes, cache, tokens, std::move(former)};
}
int64_t DeviceModel::weight_bytes() const { return impl_->weights.matrix_bytes; }
void DeviceModel::synchronize() const { kernels::cuda_synchronize(impl_->compute.stream()); }
CudaStream DeviceModel::stream() const { return impl_->compute.stream(); }
void DeviceModel::record_steps(bool on) { impl_->recording = on; }
int64_t DeviceModel::replayed() const { return impl_->steps.replayed(); }

DeviceLogits DeviceModel::forward(std::span<const DevicePass> batch, Bring bring) {
  Impl& m = *impl_;
  m.check(batch);
  if (batch.empty()) return {};
  m.prepare(batch);
  m.tell();
  KVARENA_ASSERT(bring == Bring::everything || !m.any_attends_on_host(), "rows that the host was not brought");
  const int64_t wanted = m.make_room(bring);
  m.run_or_replay();
  for (const Sequence& s : m.sequences) {
    if (s.cache != nullptr) s.cache->advance(s.rows);
  }
  return {m.logits.data(), wanted};
}

float DeviceModel::query_factor() const {
  return impl_->config.is_latent() ? impl_->attention.scale() / attention_scale(impl_->shape()) : 1.0F;
}
LayerRows DeviceModel::brought(int64_t layer, int64_t first) const { return impl_->brought.layer(layer, first); }

std::span<const float> DeviceModel::download(const DeviceLogits& logits) {
  Impl& m = *impl_;
  const int64_t floats = logits.rows * m.config.vocab_size;
  if (floats == 0) return {};
  m.answer.at_least(floats);
  kernels::cuda_download(m.answer.data(), logits.data, floats * 4, m.compute.stream());
  synchronize();
  return {m.answer.data(), static_cast<size_t>(floats)};
}

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
