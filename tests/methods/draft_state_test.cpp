// The cache that drafting leaves behind, whatever part of its drafts a verification accepts. Under a method that acts
// while decoding it is that of plain decoding of the accepted tokens, bit for bit: entries, remembered scores, packed
// codes. Under others it has the verifier's entries behind the prompt's. Every registered method that may draft x draft
// lengths x rounds that accept all, none and some.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "harness/engine/draft/cache_draft.h"
#include "harness/engine/session/compressed_cache.h"
#include "tests/support/registered_method.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int64_t kPrompt = 300;
constexpr int64_t kVocab = 128;

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// Keys and values of a head as bits of float32.
std::vector<float> numbers(const Segment& segment, int64_t head) {
  const auto size = static_cast<size_t>(segment.entries(head) * segment.shape().head_dim);
  std::vector<float> both(2 * size);
  segment.read(head, both.data(), both.data() + size);
  return both;
}

void expect_same(const KvCache& found, const KvCache& expected) {
  ASSERT_EQ(found.length, expected.length);
  ASSERT_EQ(found.states.size(), expected.states.size());
  for (size_t i = 0; i < expected.states.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(found.states[i].numbers(), expected.states[i].numbers())) << "state " << i;
  }
  for (size_t layer = 0; layer < expected.layers.size(); ++layer) {
    const LayerCache& a = found.layers[layer];
    const LayerCache& b = expected.layers[layer];
    ASSERT_EQ(a.segments().size(), b.segments().size()) << "layer " << layer;
    ASSERT_EQ(a.packed().size(), b.packed().size()) << "layer " << layer;
    for (int64_t head = 0; head < b.shape().kv_heads; ++head) {
      SCOPED_TRACE(fmt::format("layer {}, head {}", layer, head));
      for (size_t i = 0; i < b.segments().size(); ++i) {
        ASSERT_EQ(a.segments()[i]->positions(head), b.segments()[i]->positions(head)) << "segment " << i;
        ASSERT_EQ(numbers(*a.segments()[i], head), numbers(*b.segments()[i], head)) << "segment " << i;
      }
      ASSERT_TRUE(std::ranges::equal(a.tail().entry_scores(head), b.tail().entry_scores(head)));
    }
    for (size_t i = 0; i < b.packed().size(); ++i) {
      EXPECT_EQ(a.packed()[i]->unpacked_values(), b.packed()[i]->unpacked_values());
    }
  }
}

class DraftState : public testing::RegisteredMethod {
 protected:
  /// A request under the method that feeds one token a pass.
  struct Plain {
    Plain(Transformer& model, const Prefill& prompt, const Method& method)
        : cache(state_after_prompt(model, prompt, method, activity).cache),
          hooks(method, activity, kPrompt, prompt.model.get()) {}
    Activity activity;
    KvCache cache;
    MethodHooks hooks;
  };
  /// The token that follows `token` under plain decoding.
  int32_t feed(Plain& plain, int32_t token) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &plain.cache, .hooks = &plain.hooks};
    return likeliest(model_.forward({&pass, 1}));
  }
  /// Drafts a round.
  void run(CacheDraft& draft, std::span<const int32_t> history, int64_t length) {
    draft.begin({.history = history, .limit = length, .passes = length});
    while (draft.wants_pass()) {
      const SequencePass pass = draft.next_pass();
      draft.consume(model_.forward({&pass, 1}));
    }
  }

  /// Rounds that accept different parts; after each, `expect(history, before, draft)`: the accepted tokens, the number
  /// of them that had entries before the round, the drafter.
  template <class Expect>
  void rounds(const Prefill& start, const CompressedCopy& copy, int64_t length, KvCache& full, const Expect& expect) {
    Activity activity;
    CacheDraft draft(model_, start, copy, {DraftSampling::coupled, {}}, {.activity = &activity});
    std::vector<int32_t> history = start.tokens;
    history.push_back(likeliest(start.logits));
    for (const int64_t accepted : {length / 2, length, int64_t{0}, length, length - 1, int64_t{0}, length / 3}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} of {} accepted", history.size(), accepted, length));
      const int64_t before = std::ssize(history) - 1;
      run(draft, history, length);
      ASSERT_EQ(std::ssize(draft.drafts()), length);
      for (int64_t i = 0; i < accepted; ++i) history.push_back(draft.drafts()[i].token);
      const std::vector<int32_t> kept(history.begin() + before, history.end());
      std::vector<int32_t> rows(kept.size());
      std::iota(rows.begin(), rows.end(), 0);
      const SequencePass verification{.tokens = kept, .cache = &full};
      (void)model_.forward({&verification, 1});
      draft.commit({.full = full, .before = before, .tokens = kept, .rows = rows});
      ASSERT_NO_FATAL_FAILURE(expect(history, before, draft));
      // The verifier's own token, which no draft was.
      const int32_t refused = accepted < length ? draft.drafts()[accepted].token : history.back();
      history.push_back(static_cast<int32_t>((refused + 1) % kVocab));
    }
  }

  /// Drafts and verifies rounds under `spec` beside plain decoding of what is accepted.
  void expect_plain(const json& spec) {
    const auto method = make_method(spec, "test");
    const bool online = method->reach() != HookAccess::nothing;
    CompressedCopy copy;
    std::vector<std::string> problems;
    copy.compressor.build(spec, "test", problems);
    ASSERT_TRUE(problems.empty());
    const Prefill start = prefill(model_, testing::tiny_prompt(kPrompt, 7), method->needs(), kPrefillChunk, facts_);
    for (const int64_t length : {1, 4, 11}) {
      SCOPED_TRACE(fmt::format("{}, {} drafts a round", spec.dump(), length));
      KvCache full = start.cache.clone();
      Plain plain(model_, start, *method);
      rounds(
          start, copy, length, full, [&](const std::vector<int32_t>& history, int64_t before, const CacheDraft& draft) {
            for (size_t layer = 0; layer < full.layers.size() && !online; ++layer) {
              plain.cache.layers[layer].tail().append_entries(full.layers[layer].tail(), before, full.length - before);
              plain.cache.length = full.length;
            }
            if (!online) plain.cache.take_states(full);
            while (plain.cache.length < draft.cache().length) {
              const auto at = static_cast<size_t>(plain.cache.length);
              const int32_t next = feed(plain, history[at]);
              if (plain.cache.length > before && at + 1 < history.size()) {
                ASSERT_EQ(next, history[at + 1]) << "drafts are those of plain decoding";
              }
            }
            ASSERT_LE(std::ssize(history) - draft.cache().length, 1) << "the last draft alone has no entries";
            expect_same(draft.cache(), plain.cache);
          });
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(DraftState, IsThatOfPlainDecodingWhateverIsAccepted) {
  if (entry().family == Family::verification) GTEST_SKIP() << "verifiers do not draft for each other";
  expect_plain(testing::active_settings(entry()));
}

INSTANTIATE_TEST_SUITE_P(Methods, DraftState, ::testing::ValuesIn(testing::method_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(RecurrentLayers, DraftState, ::testing::ValuesIn(testing::method_names_on(testing::kHybrid)),
                         [](const auto& info) { return info.param; });

/// Settings of evictors that act otherwise while decoding than their defaults do.
class DraftStateOfSettings : public DraftState {};

TEST_P(DraftStateOfSettings, IsThatOfPlainDecodingWhateverIsAccepted) {
  for (json settings : {json{{"keep", 0.3}, {"decode_interval", 4}}, json{{"tokens", 60}, {"decode_interval", 7}},
                        json{{"keep", 0.3}, {"decode_interval", 3}, {"decode_keep", 0.2}},
                        json{{"keep", 0.3}, {"decode_interval", 5}, {"decode_scorer", {{"name", "knorm"}}}},
                        json{{"tokens", 8}, {"protect_prompt", true}, {"decode_interval", 4}},
                        json{{"keep", 0.3}, {"positions", "renumber"}}, json{{"keep", 0.3}, {"merge", true}},
                        json{{"keep", 0.3}, {"budget_rule", "global"}},
                        json{{"keep", 0.3}, {"protect_sinks", 4}, {"protect_window", 16}}}) {
    settings["name"] = GetParam();
    expect_plain(settings);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DraftStateOfSettings, ::testing::Values("h2o", "tova", "keydiff"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
