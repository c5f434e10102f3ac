#pragma once
// A small model and libraries of contexts over memory, disk and a slow link.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/session.h"
#include "harness/engine/stored/context_library.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena::stored::testing {

class Library : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 90;  // some cells and a part of one

  Library() : model_(kvarena::testing::tiny_model()), facts_(model_facts(model_)) {
    std::vector<storage::TierSettings> settings(2);
    settings[0] = {.tier = Tier::host};
    settings[1] = {.tier = Tier::remote, .link = {.name = "slow", .bytes_per_s = 2e8, .latency_s = 1e-3}};
    hierarchy_ = std::make_shared<const storage::Hierarchy>(settings);
    full_bytes_ = sized_forms(model_, prefill(model_, context(0), {}), {{CacheForm{}}}).front().bytes;
  }

  static std::vector<int32_t> context(uint64_t i) { return kvarena::testing::tiny_prompt(kTokens, 100 + i); }
  static std::vector<int32_t> prompt(uint64_t i, uint64_t question) {
    std::vector<int32_t> tokens = context(i);
    const std::vector<int32_t> rest =
        kvarena::testing::tiny_prompt(static_cast<int64_t>(5 + question % 4), 900 + question);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }
  static CacheForm form(const nlohmann::json& spec) {
    return {.label = spec.dump(), .keep = spec.value("keep", 1.0), .method = make_method(spec, "test")};
  }
  const storage::Policy& policy(const nlohmann::json& spec) {
    return *methods_.emplace_back(make_method(spec, "test"))->placement();
  }

  /// Room for so many full caches in memory and on disk, and for bytes of ready ones in front; 0: no such tier.
  std::unique_ptr<ContextLibrary> open(const storage::Policy& policy, std::vector<CacheForm> forms, double host,
                                       double disk, const Chunking* chunking = nullptr, int64_t ready = 0) {
    const auto bytes = [&](double caches) { return static_cast<int64_t>(caches * static_cast<double>(full_bytes_)); };
    LibraryPlace place{
        .tiers = {{.tier = Tier::host, .books = {.name = "memory", .capacity = bytes(host), .bandwidth = 1e10}},
                  {.tier = Tier::disk, .books = {.name = "disk", .capacity = bytes(disk), .bandwidth = 1e9}},
                  {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 2e8, .latency_s = 1e-3}}},
        .hierarchy = hierarchy_,
        .folder = scratch_.path() / fmt::format("store{}", stores_++)};
    if (ready > 0) {
      const storage::StorageTier front{.name = "device", .capacity = ready, .bandwidth = 1e300, .ready = true};
      place.tiers.insert(place.tiers.begin(), {.tier = Tier::device, .books = front});
    }
    return std::make_unique<ContextLibrary>(model_, facts_, std::move(forms), std::move(place), policy, chunking);
  }

  /// Greedy tokens behind a cache of the context.
  std::vector<int32_t> answer(KvCache cache, const std::vector<int32_t>& tokens) {
    PromptRun run(model_, tokens, facts_, std::move(cache));
    run.set_chunk(run.remaining());
    const SequencePass pass = run.next_pass();
    run.consume(model_.forward({&pass, 1}));
    const Prefill prompt = run.finish();
    const Method full;
    const auto session = start_session(model_, prompt, full, {.stop = {.max_new_tokens = 8}});
    Session* const one[] = {session.get()};
    run_together(model_, one);
    return session->tokens;
  }
  /// Answer of a request over the context compressed in memory just now.
  std::vector<int32_t> expected(uint64_t i, const CacheForm& form, const std::vector<int32_t>& tokens) {
    const Method full;
    const Method& method = form.method ? *form.method : full;
    const Prefill prompt = prefill(model_, context(i), method.needs(), kPrefillChunk, facts_);
    Activity activity;
    return answer(compress_prompt(prompt, method, activity), tokens);
  }
  static void expect_within_capacity(const ContextLibrary& library) {
    const auto& books = library.store().books();
    for (size_t tier = 0; tier < books.tiers().size(); ++tier) {
      EXPECT_LE(books.used(static_cast<int64_t>(tier)), books.tiers()[tier].capacity);
      EXPECT_LE(books.peak(static_cast<int64_t>(tier)), books.tiers()[tier].capacity);
    }
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  kvarena::testing::TemporaryFolder scratch_;
  storage::HierarchyPtr hierarchy_;
  std::vector<std::unique_ptr<Method>> methods_;
  int64_t full_bytes_ = 0;
  int stores_ = 0;
};

}  // namespace kvarena::stored::testing
