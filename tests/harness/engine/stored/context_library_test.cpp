// Contexts with real caches over memory, disk and a slow link: wherever a context lies and whatever happens to its
// bytes, a request that begins with it answers as the same cache answers in memory.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/engine/serving/serving_engine.h"
#include "tests/harness/engine/stored/library.h"

namespace kvarena::stored {
namespace {

using nlohmann::json;
using testing::Library;

/// Brings a context's cache on a thread of its own, as if that took `seconds`.
std::future<BroughtPrompt> brought(ContextLibrary& library, const std::string& key, uint64_t request, double seconds) {
  return std::async(std::launch::async, [&library, key, request, seconds, bring = library.ask(key)] {
    auto cache = std::make_shared<BroughtCache>(bring());
    std::this_thread::sleep_for(std::chrono::milliseconds(seconds > 0 ? 50 : 0));
    return BroughtPrompt{.cache =
                             [&library, key, request, cache] {
                               LoadedCache loaded = library.came(key, std::move(*cache));
                               library.used(key, 100 + static_cast<double>(request));
                               return std::move(loaded.cache);
                             },
                         .seconds = seconds};
  });
}

TEST_F(Library, AnswersTheSameFromMemoryDiskAndRemote) {
  for (const json& spec : {json(), json{{"name", "snapkv"}, {"keep", 0.5}}, json{{"name", "cachegen"}}}) {
    SCOPED_TRACE(spec.dump());
    const CacheForm held = spec.is_null() ? CacheForm{} : form(spec);
    const auto library = open(policy({{"name", "fifo"}}), {held}, 1.1, 1.1);
    uint64_t count = 0;
    while (library->store().find("0") == nullptr || library->store().find("0")->at.tier < 2) {
      library->add(fmt::format("{}", count), context(count), static_cast<double>(count));
      ASSERT_LT(++count, 40U);
    }
    for (uint64_t i = 0; i < count; ++i) {
      LoadedCache loaded = library->load(fmt::format("{}", i));
      ASSERT_EQ(loaded.tiers.size(), 1U);
      if (loaded.tiers.contains(Tier::remote)) {
        EXPECT_GE(loaded.load_s, 1e-3) << "the link takes its time";
      }
      EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, i)), expected(i, held, prompt(i, i))) << "context " << i;
    }
    for (const Tier tier : {Tier::host, Tier::disk, Tier::remote})
      EXPECT_GT(library->store().counts().hits.at(tier), 0);
    EXPECT_EQ(library->recomputed(), 0);
    expect_within_capacity(*library);
  }
}

TEST_F(Library, WhatTheDiskDamagedIsComputedAnewAndStoredAgain) {
  const auto library = open(policy({{"name", "fifo"}}), {form({{"name", "knorm"}, {"keep", 0.5}})}, 0, 10);
  for (uint64_t i = 0; i < 3; ++i) library->add(fmt::format("{}", i), context(i), static_cast<double>(i));
  const auto file = [&](const char* key) { return library->store().folder()->file_of(key); };
  std::ofstream(file("0"), std::ios::binary | std::ios::in) << "x";
  std::filesystem::resize_file(file("1"), 100);
  std::filesystem::remove(file("2"));
  for (uint64_t i = 0; i < 3; ++i) {
    const std::string key = fmt::format("{}", i);
    LoadedCache loaded = library->load(key);
    EXPECT_TRUE(loaded.tiers.empty());
    EXPECT_GT(loaded.compute_s, 0);
    EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, 7)), expected(i, CacheForm{}, prompt(i, 7)));
    library->used(key, 10 + static_cast<double>(i));
    loaded = library->load(key);
    EXPECT_EQ(loaded.tiers, (std::map<Tier, double>{{Tier::disk, 1}})) << "it was stored again";
    EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, 7)), expected(i, library->forms().front(), prompt(i, 7)));
  }
  EXPECT_EQ(library->recomputed(), 3);
  EXPECT_EQ(library->store().counts().damaged, 3);
}

TEST_F(Library, APolicyThatChoosesFormsGetsThemMadeOfTheOriginal) {
  // A cache takes 0.07 ms from the disk: worth 1% of the quality, not 80%.
  std::vector<CacheForm> forms = {CacheForm{}, form({{"name", "knorm"}, {"keep", 0.5}}),
                                  form({{"name", "snapkv"}, {"keep", 0.25}})};
  const auto library = open(policy({{"name", "evicpress"}, {"alpha", 1e-3}}), forms, 1.2, 1.2);
  for (uint64_t i = 0; i < 4; ++i) {
    const auto prompt =
        std::make_shared<const Prefill>(prefill(model_, context(i), library->needs(), kPrefillChunk, facts_));
    std::vector<storage::Form> profile = sized_forms(model_, *prompt, forms);
    profile[1].quality = i % 2 == 0 ? 0.99 : 0.2;  // every second context may lose half of its entries
    profile[2].quality = 0.1;
    library->add(
        fmt::format("{}", i), [prompt] { return prompt; }, static_cast<double>(i), profile);
    expect_within_capacity(*library);
  }
  int64_t compressed = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const storage::Choice at = library->store().find(fmt::format("{}", i))->at;
    LoadedCache loaded = library->load(fmt::format("{}", i));
    compressed += at.form;
    EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, i)),
              expected(i, forms[static_cast<size_t>(at.form)], prompt(i, i)));
  }
  EXPECT_GT(compressed, 0);
  // Another profile: only the full cache is any good. Everything is placed anew.
  for (uint64_t i = 0; i < 4; ++i) {
    std::vector<storage::Form> profile =
        sized_forms(model_, prefill(model_, context(i), library->needs(), kPrefillChunk, facts_), forms);
    profile[1].quality = profile[2].quality = 0;
    library->reprofile(fmt::format("{}", i), profile);
  }
  library->rearrange();
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(library->store().find(fmt::format("{}", i))->at.form, 0) << i;
  expect_within_capacity(*library);
}

TEST_F(Library, ServedRequestsBeginWithItWhateverSharesTheirPasses) {
  const CacheForm held = form({{"name", "snapkv"}, {"keep", 0.5}});
  const auto library = open(policy({{"name", "lru"}}), {held}, 1.2, 1.2);
  for (uint64_t i = 0; i < 5; ++i) library->add(fmt::format("{}", i), context(i), static_cast<double>(i));
  const RandomStream random(11, "requests");
  const Method full;
  std::vector<ServedRequest> requests;
  std::vector<uint64_t> of;
  for (uint64_t r = 0; r < 20; ++r) {
    of.push_back(random.below(5, r));
    const std::string key = fmt::format("{}", of.back());
    requests.push_back({.prompt = prompt(of.back(), r),
                        .method = &full,
                        .options = {.stop = {.max_new_tokens = 8}},
                        .begin = [&library = *library, key, r] { return brought(library, key, r, 0); },
                        .begun = kTokens});
  }
  ServingEngine engine(model_, requests, facts_);
  std::vector<double> times;
  for (size_t r = 0; r < requests.size(); ++r) times.push_back(0.002 * static_cast<double>(r));
  const serving::ServingRun run = serving::serve(serving::Load::at_times(times), engine,
                                                 {.cache_bytes = 1 << 26, .pass_tokens = 40, .max_running = 6});
  for (size_t r = 0; r < requests.size(); ++r) {
    ASSERT_EQ(run.requests[r].outcome, serving::Outcome::answered) << run.requests[r].reason;
    EXPECT_EQ(engine.answer(static_cast<int64_t>(r))->tokens, expected(of[r], held, requests[r].prompt)) << r;
  }
  int64_t hits = 0;
  for (const auto& [tier, count] : library->store().counts().hits) hits += count;
  EXPECT_EQ(hits, 20);
  EXPECT_EQ(run.overrun_bytes, 0);
  expect_within_capacity(*library);
}

TEST_F(Library, NobodyWaitsForTheCacheOfAnother) {
  constexpr double kSlow = 1000;  // on the run's clock: longer than the others take on any machine
  const auto library = open(policy({{"name", "lru"}}), {CacheForm{}}, 4, 4);
  for (uint64_t i = 0; i < 3; ++i) library->add(fmt::format("{}", i), context(i), static_cast<double>(i));
  const Method full;
  std::vector<ServedRequest> requests;
  for (uint64_t r = 0; r < 3; ++r) {
    const double seconds = r == 1 ? kSlow : 0;
    requests.push_back(
        {.prompt = prompt(r, r),
         .method = &full,
         .options = {.stop = {.max_new_tokens = 8}},
         .begin = [&library = *library, r, seconds] { return brought(library, fmt::format("{}", r), r, seconds); },
         .begun = kTokens});
  }
  ServingEngine engine(model_, requests, facts_);
  const serving::ServingRun run = serving::serve(serving::Load::at_times({0, 0, 0}), engine,
                                                 {.cache_bytes = 1 << 26, .pass_tokens = 40, .max_running = 6});
  for (size_t r = 0; r < requests.size(); ++r) {
    ASSERT_EQ(run.requests[r].outcome, serving::Outcome::answered) << run.requests[r].reason;
    EXPECT_EQ(engine.answer(static_cast<int64_t>(r))->tokens, expected(r, CacheForm{}, requests[r].prompt)) << r;
  }
  EXPECT_GE(run.requests[1].token_s.front(), kSlow) << "its own load counts";
  for (const size_t other : {0, 2}) {
    EXPECT_EQ(run.requests[other].token_s.size(), 8U);
    EXPECT_LT(run.requests[other].token_s.back(), run.requests[1].token_s.front()) << "it decodes beside the load";
  }
}

TEST_F(Library, WhatComesForARequestCountsAmongItsBytes) {
  const auto library = open(policy({{"name", "lru"}}), {CacheForm{}}, 4, 4);
  library->add("0", context(0), 0);
  std::promise<void> let;
  std::atomic<int64_t> coming = 0;
  const Method full;
  std::vector<ServedRequest> requests(1);
  requests[0] = {.prompt = prompt(0, 0), .method = &full, .options = {.stop = {.max_new_tokens = 8}}};
  requests[0].begin = [&] {
    const ContextLibrary::Bring bring = library->ask("0");
    coming = bring.bytes;
    return std::async(std::launch::async, [&, bring, may = let.get_future().share()] {
      may.wait();
      auto cache = std::make_shared<BroughtCache>(bring());
      coming = cache->cache->cache.bytes();
      return BroughtPrompt{.cache = [&, cache] { return library->came("0", std::move(*cache)).cache; }, .seconds = 0};
    });
  };
  requests[0].begun = kTokens;
  requests[0].coming_bytes = [&] { return coming.load(); };
  ServingEngine engine(model_, requests, facts_);
  serving::PassPlan plan;
  plan.chunks = {{.request = 0, .tokens = 1}};
  EXPECT_EQ(engine.bytes_now(0), 0);
  EXPECT_EQ(engine.run(plan).waiting.size(), 1U);
  EXPECT_EQ(engine.bytes_now(0), full_bytes_) << "on their way";
  let.set_value();
  while (!engine.run(plan).waiting.empty()) {
  }
  coming = 0;
  EXPECT_GE(engine.bytes_now(0), full_bytes_) << "its prompt's own";
  const KvCache cache = library->load("0").cache;
  EXPECT_GE(cache.ledger->peak(Tier::device), full_bytes_ + cache.bytes()) << "and what it was made of";
}

TEST_F(Library, OriginalsComeBackFromTheDiskWithWhatWasObserved) {
  Originals originals(model_, scratch_.path() / "originals");
  const CacheForm form_of = form({{"name", "snapkv"}, {"keep", 0.5}});
  std::vector<std::vector<std::byte>> forms;
  int64_t bytes = 0;
  for (uint64_t i = 0; i < 2; ++i) {
    Prefill read = prefill(model_, context(i), form_of.method->needs(), kPrefillChunk, facts_);
    forms.push_back(store_cache(read, form_of.method.get()));
    bytes += std::ssize(store_cache(read, nullptr));
    EXPECT_EQ(originals.add(std::move(read)), i);
  }
  EXPECT_EQ(originals.bytes(), bytes);
  for (uint64_t i = 0; i < 2; ++i) {
    const auto back = originals.read(i);
    EXPECT_EQ(store_cache(*back, form_of.method.get()), forms[i]) << "a form made of it has the same bits";
    EXPECT_EQ(back->tokens, context(i));
  }
  for (const auto& file : std::filesystem::directory_iterator(scratch_.path() / "originals")) {
    if (file.path().extension() == ".kv") std::filesystem::resize_file(file.path(), 100);
  }
  EXPECT_THROW((void)originals.read(0), UserError);
}

TEST_F(Library, RandomUseStaysWithinCapacityAndNeverAnswersWrong) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomStream random(seed, "library");
    const bool joint = seed % 2 == 0;
    std::vector<CacheForm> forms = {CacheForm{}};
    if (joint) forms.push_back(form({{"name", "knorm"}, {"keep", 0.4}}));
    const auto library = open(policy({{"name", joint ? "evicpress" : "lfu"}}), forms, 1.5, 2.2);
    for (uint64_t i = 0; i < 6; ++i) library->add(fmt::format("{}", i), context(i), 0);
    for (uint64_t event = 0; event < 60; ++event) {
      const uint64_t i = random.below(6, 10 * event);
      const std::string key = fmt::format("{}", i);
      if (random.uniform(10 * event + 1) < 0.15) {
        if (const auto* const context = library->store().find(key); context != nullptr && context->at.tier == 1) {
          std::filesystem::remove(library->store().folder()->file_of(key));
        }
      }
      LoadedCache loaded = library->load(key);
      const CacheForm& in = forms[loaded.form.keep < 1 ? 1 : 0];
      if (event % 6 == 0) {
        EXPECT_EQ(answer(std::move(loaded.cache), prompt(i, event)), expected(i, in, prompt(i, event)));
      }
      library->used(key, static_cast<double>(event));
      expect_within_capacity(*library);
    }
  }
}

TEST_F(Library, FormsThatCannotBeStoredAreRefusedByName) {
  try {
    (void)open(policy({{"name", "lru"}}), {form({{"name", "gear"}})}, 1, 1);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("gear"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvarena::stored
