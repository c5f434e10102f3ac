// Batch invariance over every kind of decoder: a token's logits have the same bits alone, in a batch, after any
// chunking of the prompt, inside a verification pass, with one thread or two, and on every instruction set. Of names
// that end in "_rounded" the arithmetic is bf16.

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "kernels/common/cpu_path.h"
#include "kernels/common/parallel.h"
#include "tests/support/golden_model.h"
#include "tests/support/registered_method.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 550;  // past the 512 entries that attention merges at a time
constexpr int64_t kNewTokens = 8;

using Logits = std::vector<std::vector<float>>;  // a row for each new token

class Invariance : public ::testing::TestWithParam<std::string> {
 protected:
  Invariance() : model_(make()) {}

  static Transformer make() {
    std::string name = GetParam();
    TransformerOptions options;
    if (constexpr std::string_view kRounded = "_rounded"; name.ends_with(kRounded)) {
      name.resize(name.size() - kRounded.size());
      options.arithmetic = kernels::Arithmetic::bf16;
    }
    testing::GoldenModel golden = testing::golden_model(name);
    golden.config.max_position = 1024;
    return golden.transformer(options);
  }

  [[nodiscard]] Logits decode(const Prefill& prompt, const json& spec, std::vector<int32_t>* tokens = nullptr) {
    const auto method = make_method(spec, "test");
    Logits rows;
    SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
    options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
    const auto session = start_session(model_, prompt, *method, options);
    Session* const sessions[] = {session.get()};
    run_together(model_, sessions);
    if (tokens != nullptr) *tokens = session->tokens;
    return rows;
  }

  Transformer model_;
};

TEST_P(Invariance, AnyChunkingOfThePromptGivesTheSameBits) {
  const std::vector<int32_t> tokens = tiny_prompt(kPrompt);
  const Prefill whole = prefill(model_, tokens, {}, 1000);
  const Logits next = decode(whole, {{"name", "full"}});
  const RandomStream draw(11, "chunks");
  for (uint64_t i = 0; i < 3; ++i) {
    const auto chunk = 1 + static_cast<int64_t>(draw.below(200, i));
    const Prefill cut = prefill(model_, tokens, {}, chunk);
    EXPECT_EQ(cut.logits, whole.logits) << "chunk " << chunk;
    EXPECT_EQ(decode(cut, {{"name", "full"}}), next) << "chunk " << chunk;
  }
}

TEST_P(Invariance, OneThreadOrTwoGiveTheSameBits) {
  const std::vector<int32_t> tokens = tiny_prompt(kPrompt);
  std::vector<Logits> results;
  for (const int threads : {1, 2}) {
    const kernels::ScopedThreads scoped(threads);
    const Prefill prompt = prefill(model_, tokens, {});
    results.push_back(decode(prompt, {{"name", "full"}}));
    results.back().push_back(prompt.logits);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(Invariance, EveryInstructionSetGivesTheSameBits) {
  const std::vector<int32_t> tokens = tiny_prompt(kPrompt);
  const bool exact = model_.options().arithmetic == kernels::Arithmetic::exact;
  std::optional<Logits> first;
  for (const kernels::CpuPath path : kernels::available_cpu_paths()) {
    if (path == kernels::CpuPath::reference || (path == kernels::CpuPath::amx && exact)) continue;
    SCOPED_TRACE(name_of(path));
    const kernels::ScopedCpuPath forced(path);
    const Prefill prompt = prefill(model_, tokens, {});
    Logits rows = decode(prompt, {{"name", "full"}});
    rows.push_back(prompt.logits);
    if (!first) first = rows;
    EXPECT_EQ(rows, *first);
  }
}

TEST_P(Invariance, ABatchOfSixteenGivesEachTheBitsItHasAlone) {
  const auto full = make_method({{"name", "full"}}, "test");
  std::vector<Prefill> prompts;
  std::vector<Logits> together(16);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (uint64_t i = 0; i < 16; ++i) {
    prompts.push_back(prefill(model_, tiny_prompt(static_cast<int64_t>(1 + i * i), i), {}));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    SessionOptions options{.stop = {.max_new_tokens = kNewTokens}};
    options.on_logits = [&rows = together[i]](int64_t, std::span<const float> row) {
      rows.emplace_back(row.begin(), row.end());
    };
    sessions.push_back(start_session(model_, prompts[i], *full, options));
    running.push_back(sessions.back().get());
  }
  run_together(model_, running);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i], decode(prompts[i], {{"name", "full"}})) << "prompt " << i;
  }
}

TEST_P(Invariance, AVerificationPassGivesTheBitsOfSteps) {
  const Prefill prompt = prefill(model_, tiny_prompt(kPrompt), {});
  const json spec = {{"name", "vericache"},
                     {"draft_length", 5},
                     {"drafter", {{"name", "streaming_llm"}, {"keep", 0.5}, {"layers", "all"}}}};
  EXPECT_EQ(decode(prompt, spec), decode(prompt, {{"name", "full"}}));
}

/// Every method works on this decoder, or says in a sentence why not; as a drafter it changes no bit.
TEST_P(Invariance, EveryMethodWorksOrRefuses) {
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == Family::verification) continue;
    SCOPED_TRACE(entry.info.name);
    json drafter = {{"name", entry.info.name}};
    if (entry.family == Family::prefill) drafter = testing::active_settings(entry);
    for (const ParameterInfo& parameter : entry.parameters()) {
      if (parameter.name == "keep") drafter["keep"] = 0.5;
    }
    const json spec = {{"name", "vericache"}, {"draft_length", 4}, {"drafter", drafter}};
    try {
      const Prefill prompt = prefill(model_, tiny_prompt(120), make_method(spec, "test")->needs());
      std::vector<int32_t> verified;
      std::vector<int32_t> plain;
      EXPECT_EQ(decode(prompt, spec, &verified), decode(prompt, {{"name", "full"}}, &plain));
      EXPECT_EQ(verified, plain);
    } catch (const UserError& refusal) {
      EXPECT_GT(std::string(refusal.what()).size(), 20U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, Invariance,
                         ::testing::Values("deepseek_v2_lite", "deepseek_v3", "gemma3", "gpt_oss", "llama4",
                                           "llama_biased", "llama_dynamic", "mistral", "phi4_mini", "qwen2_sliding",
                                           "qwen3_5", "qwen3_moe", "qwen3_moe_mixed", "qwen3_next_mixed",
                                           "deepseek_v3_rounded", "gemma3_rounded", "gpt_oss_rounded",
                                           "llama_biased_rounded", "qwen3_next_mixed_rounded"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
