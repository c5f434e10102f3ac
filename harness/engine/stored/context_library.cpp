#include "harness/engine/stored/context_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/core/error.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {
namespace {

using Clock = std::chrono::steady_clock;
using storage::Form;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Needs needs_of(std::span<const CacheForm> forms) {
  Needs needs;
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

std::vector<Form> sized_forms(const Prefill& prompt, std::span<const CacheForm> forms) {
  std::vector<Form> sized;
  for (const CacheForm& form : forms) {
    const auto bytes = static_cast<int64_t>(store_cache(prompt, form.method.get()).size());
    sized.push_back({.method = form.label, .keep = form.keep, .bytes = bytes});
  }
  return sized;
}

ContextLibrary::ContextLibrary(Transformer& model, std::shared_ptr<const ModelFacts> facts,
                               std::vector<CacheForm> forms, LibraryPlace place, const storage::Policy& policy)
    : model_(&model),
      facts_(std::move(facts)),
      forms_((check_forms(forms), std::move(forms))),
      needs_(needs_of(forms_)),
      store_(std::move(place.tiers), std::move(place.hierarchy), place.folder, policy,
             [this](const std::string& key, const Form& form) { return make(key, form); }) {}

const CacheForm& ContextLibrary::form_of(const Form& form) const {
  const auto found = std::ranges::find_if(
      forms_, [&](const CacheForm& known) { return known.label == form.method && known.keep == form.keep; });
  KVARENA_ASSERT(found != forms_.end(), fmt::format("no form \"{}\" that keeps {}", form.method, form.keep));
  return *found;
}

std::vector<std::byte> ContextLibrary::make(const std::string& key, const Form& form) const {
  const Context& context = contexts_.at(key);
  KVARENA_ASSERT(context.original != nullptr, fmt::format("nothing to make a form of \"{}\" from", key));
  return store_cache(*context.original(), form_of(form).method.get());
}

void ContextLibrary::put(const std::string& key, Context& context, double now, int64_t accesses) {
  store_.put(key, context.profile, now, accesses);
  if (forms_.size() == 1) context.original = nullptr;  // no other form will be asked for
}

void ContextLibrary::add(const std::string& key, Original original, double now,
                         std::optional<std::vector<Form>> profile, int64_t accesses) {
  KVARENA_ASSERT(!contexts_.contains(key), fmt::format("context \"{}\" twice", key));
  Context& context = contexts_[key];
  {
    const std::shared_ptr<const Prefill> prompt = original();
    context.tokens = prompt->tokens;
    context.profile = profile ? std::move(*profile) : sized_forms(*prompt, forms_);
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
  std::optional<storage::Reading> reading = store_.ask(key);
  if (!reading) return [] { return BroughtCache{}; };
  const Method* method = form_of(reading->form).method.get();
  return [this, method, reading = std::move(*reading)] {
    BroughtCache brought{.reading = reading, .cache = std::nullopt};
    const auto start = Clock::now();
    double restore = 0;
    reading.bytes([&](std::span<const std::byte> bytes) {
      const auto arrived = Clock::now();
      brought.cache = LoadedCache{
          .cache = restore_cache(*model_, *facts_, method, bytes), .tier = reading.tier, .form = reading.form};
      restore = seconds_since(arrived);
    });
    if (brought.cache) {
      brought.cache->restore_s = restore;
      brought.cache->load_s = seconds_since(start) - restore;
    }
    return brought;
  };
}

LoadedCache ContextLibrary::came(const std::string& key, BroughtCache brought) {
  if (brought.reading) store_.came(key, *brought.reading, brought.cache.has_value());
  if (brought.cache) return std::move(*brought.cache);
  Context& context = contexts_.at(key);
  const auto absent = Clock::now();
  const auto prompt = std::make_shared<const Prefill>(prefill(*model_, context.tokens, needs_, kPrefillChunk, facts_));
  context.original = [prompt] { return prompt; };
  ++recomputed_;
  return {.cache = prompt->cache.clone(),
          .tier = std::nullopt,
          .form = {.bytes = prompt->cache.bytes()},
          .compute_s = seconds_since(absent)};
}

void ContextLibrary::used(const std::string& key, double now) {
  if (store_.find(key) != nullptr) return store_.use(key, now);
  Context& context = contexts_.at(key);
  if (context.original) put(key, context, now);  // otherwise it was lost after load(): the next one computes it
}

void ContextLibrary::reprofile(const std::string& key, std::vector<Form> profile) {
  Context& context = contexts_.at(key);
  context.profile = std::move(profile);
  if (store_.find(key) != nullptr) store_.profile(key, context.profile);
}

}  // namespace kvarena::stored
