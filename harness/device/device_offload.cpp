#include "harness/device/device_offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "harness/cache/attend_plan.h"
#include "harness/cache/known_choice.h"
#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/device/device_errors.h"
#include "harness/device/layer_placement.h"
#include "harness/device/offloaded_rows.h"
#include "harness/model/attend_sequence.h"

namespace kvarena::device {
namespace {

HookAccess access_of(const SequencePass& pass) {
  return pass.hooks == nullptr ? HookAccess::nothing : pass.hooks->reach();
}

/// Whether the views of a pass are known before it.
bool knows_views(const SequencePass& pass) {
  const auto* const hooks = dynamic_cast<const KnownChoice*>(pass.hooks);
  return hooks != nullptr && hooks->known(*pass.cache);
}

/// Whether a pass reads upper planes alone, which is known before it.
bool reads_planes(const SequencePass& pass) { return access_of(pass) == HookAccess::planes && pass.tokens.size() == 1; }

/// Entries that only views show, to passes of one token.
bool wants_views(const KvCache& cache) {
  return std::ranges::any_of(cache.layers, [](const LayerCache& layer) {
    return std::ranges::any_of(layer.segments(),
                               [](const auto& segment) { return bool{stored_item(*segment).gather}; });
  });
}

}  // namespace

DeviceOffload::DeviceOffload(DeviceModel model, int64_t cache_bytes)
    : model_(std::move(model)), shapes_(model_.shapes()) {
  DeviceBytes limits;
  for (const PlacedLayer& layer : shapes_) {
    const kernels::CudaDeviceScope there(layer.device);
    limits[layer.device] = cache_bytes > 0 ? cache_bytes : room_for_caches(kernels::cuda_free_bytes());
  }
  mirrors_ = std::make_shared<DeviceMirrors>(shapes_, std::move(limits));
  const kernels::CudaDeviceScope last(shapes_.back().device);
  searcher_ = std::make_shared<KeySearcher>(mirrors_, shapes_.back().device);
}

ArrivingCache* DeviceOffload::arriving(const SequencePass& pass) const {
  auto* const cache = dynamic_cast<ArrivingCache*>(pass.hooks);
  const bool looks_on = access_of(pass) == HookAccess::rows && layers_ == std::ssize(shapes_);
  const bool comes = cache != nullptr && looks_on && cache->arriving(*pass.cache);
  return comes && mirrors_->expects(*pass.cache, std::ssize(pass.tokens)) ? cache : nullptr;
}

bool DeviceOffload::attends(const SequencePass& pass) const {
  const HookAccess reach = access_of(pass);
  if (reach == HookAccess::attention || !DeviceCache::cannot_hold(shapes_, *pass.cache, layers_).empty()) return false;
  if (wants_views(*pass.cache) && (reach != HookAccess::views || pass.tokens.size() > 1)) return false;
  return reach != HookAccess::views || pass.parents.empty();  // rows of a tree see a view already
}

std::span<const float> DeviceOffload::forward(std::span<const SequencePass> batch) {
  if (batch.empty()) return {};
  const int64_t exit = batch.front().exit_after;
  layers_ = exit > 0 ? exit : std::ssize(shapes_);
  const auto run = [&] {
    std::optional<HeldCopies> held;  // by this pass
    const DeviceLogits logits = start(batch, held);
    show();
    const std::span<const float> rows = model_.download(logits);
    finish();
    return rows;
  };
  return on_device(run, [&] {
    for (const SequencePass& pass : batch) {
      if (arriving(pass) != nullptr) (void)failure_of([&] { pass.hooks->complete(*pass.cache); });
      pass.cache->mirror.reset();  // nothing is on its way to it
    }
  });
}

std::unique_ptr<RowStream> DeviceOffload::rows_of(KvCache& cache, int64_t tokens, bool by_layer) {
  return std::make_unique<OffloadedRows>(model_, *mirrors_, cache, tokens, by_layer, tokens_);
}

void DeviceOffload::upload(KvCache& cache, int64_t tokens) {
  if (wants_views(cache)) return;  // only some of its passes are the device's
  on_device([&] { mirrors_->upload(cache, tokens); }, [&] { cache.mirror.reset(); });
}

std::unique_ptr<SearchedKeys> DeviceOffload::searched_keys(int64_t kv_heads, int64_t head_dim,
                                                           const LedgerPtr& ledger) {
  return std::make_unique<DeviceKeys>(searcher_, kv_heads, head_dim, ledger);
}

std::unique_ptr<Offload> DeviceOffload::beside(const ModelConfig& config, const Checkpoint& checkpoint,
                                               const TransformerOptions& options) {
  const int64_t device = shapes_.back().device;
  try {
    DeviceModel model(config, checkpoint, options, std::vector<int64_t>(static_cast<size_t>(config.layers), device));
    int64_t entry = 0;
    for (const PlacedLayer& layer : model.shapes()) entry += layer.entry_bytes();
    const int64_t caches = entry * std::min(config.max_position, kTokensOnFewest);
    mirrors_->give_up(device, model.weight_bytes() + caches);
    return std::make_unique<DeviceOffload>(std::move(model), caches);
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of CUDA
    fail({.place = config.name,
          .found = error.what(),
          .expected = fmt::format("room on device {} beside the model that it helps", device),
          .action = "a smaller one or smaller weights (\"bf16\") may fit"});
  }
}

/// Decides who attends in each pass, and who selects.
void DeviceOffload::sort(std::span<const SequencePass> batch) {
  sequences_.clear();
  for (int64_t first = 0; const SequencePass& pass : batch) {
    const HookAccess reach = access_of(pass);
    Sequence& sequence = sequences_.emplace_back(
        Sequence{.pass = &pass, .reach = reach, .first_row = first, .arriving = arriving(pass)});
    if (reach != HookAccess::nothing) {
      if (sequence.arriving == nullptr) pass.hooks->complete(*pass.cache);
      pass.hooks->before_pass(*pass.cache, pass.tokens);
    }
    if (sequence.arriving == nullptr && !attends(pass)) {
      // The host calls hooks whatever their reach: those of a cache that no device holds may do nothing in a pass.
      if (reach == HookAccess::nothing && pass.hooks != nullptr) pass.hooks->before_pass(*pass.cache, pass.tokens);
      sequence.host = std::make_unique<HostSequence>(pass, model_);
    } else if (reach == HookAccess::views) {
      sequence.choice = std::make_unique<ChosenSequence>(pass, model_, knows_views(pass));
    }
    first += std::ssize(pass.tokens);
  }
}

DeviceLogits DeviceOffload::start(std::span<const SequencePass> batch, std::optional<HeldCopies>& held) {
  sort(batch);
  std::vector<GrowingCache> grown;
  Download bring = Download::entries;
  for (const Sequence& sequence : sequences_) {
    if (sequence.host != nullptr || sequence.reach != HookAccess::nothing) bring = Download::everything;
    if (sequence.host != nullptr) continue;
    grown.push_back({.host = sequence.pass->cache,
                     .tokens = std::ssize(sequence.pass->tokens),
                     .arriving = sequence.arriving != nullptr});
  }
  held.emplace(mirrors_->of(grown, layers_));
  std::vector<DevicePass> passes;
  size_t next = 0;
  for (Sequence& sequence : sequences_) {
    const SequencePass& pass = *sequence.pass;
    if (sequence.host == nullptr) sequence.cache = (*held)[next++];
    if (sequence.choice != nullptr && sequence.cache->full()) sequence.shared = sequence.choice->shared(layers_);
    const bool lists = sequence.shared && !sequence.shared->lists.empty();
    passes.push_back({.tokens = pass.tokens,
                      .cache = sequence.cache,
                      .logits = pass.logits,
                      .attended = lists ? &sequence.shared->lists : nullptr,
                      .whole = lists ? &sequence.shared->whole : nullptr,
                      .parents = pass.parents,
                      .codes_alone = reads_planes(pass),
                      .host = sequence.host.get(),
                      .choice = sequence.shared ? nullptr : sequence.choice.get()});
    if (ArrivingCache* const cache = sequence.arriving; cache != nullptr)
      passes.back().arrive = [cache](int64_t layer) { cache->arrive(layer); };
  }
  return model_.forward(passes, bring, layers_);
}

/// Shows each layer to those who look at it, while the device computes the layers behind: what a method fetches for the
/// next token is on its way before this one is there.
void DeviceOffload::show() {
  for (int64_t layer = 0; layer < layers_; ++layer) {
    for (const Sequence& s : sequences_) {
      if (s.reach != HookAccess::nothing) take(layer, s);
    }
  }
}

/// Others' caches change when the whole pass is there.
void DeviceOffload::finish() {
  for (int64_t layer = 0; layer < layers_; ++layer) {
    for (const Sequence& s : sequences_) {
      if (s.reach == HookAccess::nothing) take(layer, s);
    }
  }
  for (const Sequence& s : sequences_) {
    s.pass->cache->length += std::ssize(s.pass->tokens);
    tokens_ += std::ssize(s.pass->tokens);
    if (s.host != nullptr) tokens_attended_on_host_ += std::ssize(s.pass->tokens);
  }
}

/// Puts what the device computed into the host's cache and shows it to observers.
void DeviceOffload::take(int64_t layer, const Sequence& sequence) {
  const SequencePass& pass = *sequence.pass;
  const LayerRows rows = model_.brought(layer, sequence.first_row);
  const int64_t count = std::ssize(pass.tokens);
  if (sequence.cache != nullptr) {
    const QkvRows& from = rows.attention;
    if (sequence.choice == nullptr || sequence.choice->known())
      pass.cache->layers[layer].append(from.keys, from.values, count, from.kv_stride, pass.cache->length);
    DeviceMirrors::appended(*pass.cache, layer);
    if (sequence.reach != HookAccess::nothing) {
      const DeviceMirrors::LayerScope copies(*pass.cache, layer);
      show(layer, sequence, rows);
    }
  }
  if (sequence.reach != HookAccess::nothing)
    pass.hooks->after_layer(layer, rows.residual, count, model_.config().hidden_size);
}

void DeviceOffload::show(int64_t layer, const Sequence& sequence, const LayerRows& rows) {
  const SequencePass& pass = *sequence.pass;
  LayerCache& cache = pass.cache->layers[layer];
  QkvRows from = rows.attention;
  from.q = host_queries(model_, from, std::ssize(pass.tokens), queries_);
  const LayerQueries queries = queries_of(pass, from, rows.hidden);
  if (sequence.choice == nullptr) {
    pass.hooks->before_attention(layer, cache, queries);
    KVARENA_ASSERT(cache.view == nullptr || reads_planes(pass), "a view of what the device has attended to");
  }
  kernels::AttentionReader* const reader = cache.view == nullptr ? pass.hooks->reader(layer, cache, queries) : nullptr;
  if (reader != nullptr) {
    KVARENA_ASSERT(pass.parents.empty(), "trees show nobody what they attend to");
    const std::vector<kernels::QuerySum> sums = reader->only_sums();
    if (!sums.empty() && sequence.cache->full()) {
      mirrors_->add_sums(*sequence.cache, layer, queries, rows.lse, sums);
    } else {
      read(*reader, cache, queries);
      tokens_read_on_host_ += queries.q_len;
    }
  }
  pass.hooks->after_attention(layer, cache, queries, rows.lse);
}

void DeviceOffload::read(kernels::AttentionReader& reader, const LayerCache& cache, const LayerQueries& queries) {
  const LayerShape& shape = cache.shape();
  const int64_t q_rows = queries.q_len * shape.q_heads;
  attended_.resize(static_cast<size_t>(q_rows * shape.head_dim));
  running_.resize(static_cast<size_t>(2 * q_rows));
  kernels::AttentionState state{.out = attended_.data(), .max = running_.data(), .sum = running_.data() + q_rows};
  kernels::init_attention(state, queries.q_len, shape.q_heads, shape.head_dim);
  attend(cache.plan(queries), state, &reader);
}

}  // namespace kvarena::device
