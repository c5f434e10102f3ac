#include "harness/engine/stored/context_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {
namespace {

using Clock = std::chrono::steady_clock;
using storage::Form;

Needs needs_of(std::span<const CacheForm> forms, const Chunking* chunking) {
  Needs needs = chunking == nullptr ? Needs{} : chunking->observed();
  for (const CacheForm& form : forms) {
    if (form.method) needs = combine(needs, form.method->needs());
  }
  return needs;
}

void check_forms(std::span<const CacheForm> forms) {
  KVARENA_ASSERT(!forms.empty(), "a library of no forms");
  for (const CacheForm& form : forms) {
    const std::string problem = form.method ? storing_problem(*form.method) : "";
    if (!problem.empty()) throw UserError(fmt::format("form \"{}\": {}", form.label, problem));
  }
}

}  // namespace

std::vector<Form> sized_forms(const Transformer& model, const Prefill& prompt, std::span<const CacheForm> forms) {
  std::vector<Form> sized;
  for (const CacheForm& form : forms) {
    const std::vector<std::byte> bytes = store_form(prompt, form);
    sized.push_back({.method = form.label, .keep = form.keep, .bytes = std::ssize(bytes)});
    if (form.ready) sized.back().ready_bytes = ReadyCache(model, *prompt.model, form.method.get(), bytes).bytes();
  }
  return sized;
}

ContextLibrary::ContextLibrary(Transformer& model, std::shared_ptr<const ModelFacts> facts,
                               std::vector<CacheForm> forms, LibraryPlace place, const storage::Policy& policy,
                               const Chunking* chunking)
    : model_(&model),
      facts_(std::move(facts)),
      forms_((check_forms(forms), std::move(forms))),
      chunking_(chunking),
      needs_(needs_of(forms_, chunking)),
      store_(
          std::move(place.tiers), std::move(place.hierarchy), place.folder, policy,
          [this](const std::string& key, const Form& form) { return maker(key, form); },
          [this](const Form& form, std::span<const std::byte> bytes) {
            return std::make_shared<const ReadyCache>(*model_, *facts_, form_of(form).method.get(), bytes);
          }) {
  KVARENA_ASSERT(chunking == nullptr || (forms_.size() == 1 && !forms_.front().method), "chunks are uncompressed");
}

const CacheForm& ContextLibrary::form_of(const Form& form) const {
  const auto found = std::ranges::find_if(
      forms_, [&](const CacheForm& known) { return known.label == form.method && known.keep == form.keep; });
  KVARENA_ASSERT(found != forms_.end(), fmt::format("no form \"{}\" that keeps {}", form.method, form.keep));
  return *found;
}

std::function<std::vector<std::byte>()> ContextLibrary::maker(const std::string& key, const Form& form) const {
  const Object& object = objects_.at(key);
  const Original& original = object.context->original;
  KVARENA_ASSERT(original != nullptr, fmt::format("nothing to make a form of \"{}\" from", key));
  if (object.chunk != nullptr) {
    return [original, &chunk = *object.chunk] { return store_chunk(original()->cache, chunk); };
  }
  return [original, form = form_of(form)] { return store_form(*original(), form); };
}

std::vector<std::pair<std::string, const CacheChunk*>> ContextLibrary::objects_of(const std::string& key,
                                                                                  const Context& context,
                                                                                  bool need) const {
  if (chunking_ == nullptr) return {{key, nullptr}};
  std::vector<std::pair<std::string, const CacheChunk*>> objects;
  for (size_t i = 0; i < context.divided.chunks.size(); ++i) {
    const CacheChunk& chunk = context.divided.chunks[i];
    if (!need || chunk.importance > 0) objects.emplace_back(fmt::format("{}, chunk {}", key, i), &chunk);
  }
  return objects;
}

void ContextLibrary::put(const std::string& key, Context& context, double now, int64_t accesses) {
  std::vector<storage::Newcomer> newcomers;
  for (auto& [name, chunk] : objects_of(key, context, /*need=*/false)) {
    objects_[name] = {.context = &context, .chunk = chunk};
    storage::Newcomer one{.key = std::move(name), .forms = context.profile, .accesses = accesses};
    if (chunk != nullptr) {
      one.forms = {{.bytes = std::ssize(store_chunk(context.original()->cache, *chunk))}};
      one.importance = chunk->importance;
    }
    newcomers.push_back(std::move(one));
  }
  store_.put_all(std::move(newcomers), now);
  if (forms_.size() == 1) context.original = nullptr;  // no other form will be asked for
}

void ContextLibrary::add(const std::string& key, Original original, double now,
                         std::optional<std::vector<Form>> profile, int64_t accesses) {
  KVARENA_ASSERT(!contexts_.contains(key), fmt::format("context \"{}\" twice", key));
  Context& context = contexts_[key];
  {
    const std::shared_ptr<const Prefill> prompt = original();
    context.tokens = prompt->tokens;
    if (chunking_ != nullptr) {
      context.divided = divide(*prompt, *chunking_);
      original = [prompt] { return prompt; };  // all chunks are made at once
    } else {
      context.profile = profile ? std::move(*profile) : sized_forms(*model_, *prompt, forms_);
    }
  }
  context.original = std::move(original);
  put(key, context, now, accesses);
}

void ContextLibrary::add(const std::string& key, std::vector<int32_t> tokens, double now,
                         std::optional<std::vector<Form>> profile) {
  const auto prompt = std::make_shared<const Prefill>(prefill(*model_, tokens, needs_, kPrefillChunk, facts_));
  add(
      key, [prompt] { return prompt; }, now, std::move(profile));
}

ContextLibrary::Bring ContextLibrary::ask(const std::string& key) {
  const auto start = Clock::now();  // bytes are on their way from here on
  const Context& context = contexts_.at(key);
  std::vector<ObjectRead> reads;
  int64_t bytes = 0;
  for (auto& [name, chunk] : objects_of(key, context, /*need=*/true)) {
    std::optional<storage::Reading> reading = store_.ask(name);
    if (!reading) return {.whole = [] { return BroughtCache{}; }};
    if (!reading->ready) bytes += reading->form.bytes;
    reads.push_back({.key = std::move(name), .chunk = chunk, .reading = std::move(*reading)});
  }
  return {.bytes = bytes, .whole = [this, &context, reads = std::move(reads), start] {
            BroughtCache brought = bring(context, reads);
            if (brought.cache) brought.cache->load_s = seconds_since(start) - brought.cache->restore_s;
            return brought;
          }};
}

/// Objects become a cache in their order while the others are on their way.
BroughtCache ContextLibrary::bring(const Context& context, std::vector<ObjectRead> reads) const {
  BroughtCache brought;
  std::optional<KvCache> cache;
  std::optional<ChunkedCache> chunks;
  if (chunking_ != nullptr) chunks.emplace(*model_, context.divided);
  double restore = 0;
  int64_t total = 0;
  std::map<Tier, double> tiers;
  std::shared_ptr<const ReadyCache> ready;
  for (ObjectRead& read : reads) {
    ready = std::dynamic_pointer_cast<const ReadyCache>(read.reading.ready);
    if (ready) cache.emplace(ready->begin(*model_));
    read.whole = ready != nullptr || read.reading.bytes([&](std::span<const std::byte> bytes) {
      const auto arrived = Clock::now();
      if (read.chunk != nullptr) {
        chunks->add(*read.chunk, bytes);
      } else {
        cache.emplace(restore_cache(*model_, *facts_, form_of(read.reading.form).method.get(), bytes));
      }
      restore += seconds_since(arrived);
    });
    brought.reads.push_back(read);
    if (!read.whole) return brought;
    total += read.reading.form.bytes;
    tiers[read.reading.tier] += static_cast<double>(read.reading.form.bytes);
  }
  const auto arrived = Clock::now();
  if (chunks) cache.emplace(chunks->finish(std::ssize(context.tokens)));
  if (!ready) count_beside(*cache, total);
  model_->upload(*cache, 0);
  if (!ready) restore += seconds_since(arrived);
  for (auto& [tier, share] : tiers) share /= static_cast<double>(total);
  Form form = reads.front().reading.form;
  form.bytes = total;
  brought.cache =
      LoadedCache{.cache = std::move(*cache), .tiers = std::move(tiers), .form = std::move(form), .restore_s = restore};
  return brought;
}

LoadedCache ContextLibrary::came(const std::string& key, BroughtCache brought) {
  for (const ObjectRead& read : brought.reads) store_.came(read.key, read.reading, read.whole);
  if (brought.cache) return std::move(*brought.cache);
  Context& context = contexts_.at(key);
  const auto absent = Clock::now();
  const auto prompt = std::make_shared<const Prefill>(prefill(*model_, context.tokens, needs_, kPrefillChunk, facts_));
  context.original = [prompt] { return prompt; };
  ++recomputed_;
  return {.cache = prompt->cache.clone(),
          .tiers = {},
          .form = {.bytes = prompt->cache.bytes()},
          .compute_s = seconds_since(absent)};
}

void ContextLibrary::used(const std::string& key, double now) {
  Context& context = contexts_.at(key);
  std::vector<std::string> names;
  for (auto& [name, chunk] : objects_of(key, context, /*need=*/true)) {
    if (store_.find(name) != nullptr) {
      names.push_back(std::move(name));
    } else if (context.original) {
      return put(key, context, now);
    }
  }
  store_.use_all(names, now);  // one that was lost since it came is computed by the next request
}

std::vector<const storage::Context*> ContextLibrary::stored(const std::string& key) const {
  std::vector<const storage::Context*> all;
  for (const auto& [name, chunk] : objects_of(key, contexts_.at(key), /*need=*/false)) {
    if (const storage::Context* one = store_.find(name); one != nullptr) all.push_back(one);
  }
  return all;
}

void ContextLibrary::reprofile(const std::string& key, std::vector<Form> profile) {
  Context& context = contexts_.at(key);
  context.profile = std::move(profile);
  if (store_.find(key) != nullptr) store_.profile(key, context.profile);
}

}  // namespace kvarena::stored
