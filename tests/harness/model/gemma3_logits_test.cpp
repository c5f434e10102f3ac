// Logits and greedy answers of Gemma 3 270M against the transformers library (tests/golden/gemma3_logits.py).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"
#include "tests/support/default_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::span<const float> feed(Transformer& model, KvCache& cache, std::span<const int32_t> tokens) {
  const SequencePass pass{.tokens = tokens, .cache = &cache};
  return model.forward({&pass, 1});
}

/// Largest distance from the row's logits.
float distance(std::span<const float> logits, const json& row) {
  float largest = 0;
  for (size_t i = 0; i < row["ids"].size(); ++i) {
    largest = std::max(largest, std::abs(logits[row["ids"][i].get<size_t>()] - row["logits"][i].get<float>()));
  }
  return largest;
}

/// The prompt of a case: a text, or sentences that differ and an end.
std::string prompt_of(const json& one) {
  if (one.contains("text")) return one["text"];
  constexpr std::array kPlaces{"harbour",         "library", "mountain hut", "market", "observatory",
                               "railway station", "garden",  "museum",       "mill"};
  constexpr std::array kKeepers{"Ada",   "Bruno", "Chiara", "Dmitri", "Elif", "Farid",
                                "Greta", "Hiro",  "Ines",   "Jonas",  "Keiko"};
  std::string text;
  for (size_t i = 0; i < one["sentences"].get<size_t>(); ++i) {
    text +=
        fmt::format("In the year {}, the keeper of the {} was {}, who wrote {} pages about the weather and the {}. ",
                    1801 + i, kPlaces[i % 9], kKeepers[i % 11], i * 37 % 101, kPlaces[(i * 5 + 2) % 9]);
  }
  return text + one["end"].get<std::string>();
}

TEST(Gemma3, PromptsOfAllLengthsGetTheLogitsAndTheAnswersOfTransformers) {
  if (!std::filesystem::exists(testing::gemma3_file())) {
    GTEST_SKIP() << testing::gemma3_file() << " is absent: run scripts/setup --gemma";
  }
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/gemma3_logits.json"));
  const OpenedModel opened = open_model(testing::gemma3_file());
  Transformer model(opened.config, *opened.checkpoint,
                    TransformerOptions{.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  for (const json& one : golden["cases"]) {
    const auto count = one["tokens"].get<size_t>();
    SCOPED_TRACE(fmt::format("{} tokens", count));
    const std::vector<int32_t> tokens = opened.tokenizer->encode(prompt_of(one));
    ASSERT_EQ(tokens.size(), count);
    const auto last = one["last"].get<std::vector<int32_t>>();
    ASSERT_TRUE(std::equal(last.rbegin(), last.rend(), tokens.rbegin()));
    KvCache cache = model.make_cache();
    std::span<const float> logits;
    for (const json& row : one["rows"]) {
      const auto end = row["position"].get<int64_t>() + 1;
      while (cache.length < end) {  // in chunks of at most 512 tokens
        const int64_t piece = std::min<int64_t>(512, end - cache.length);
        logits = feed(model, cache, std::span(tokens).subspan(cache.length, piece));
      }
      const float apart = distance(logits, row);  // float32 sums over thousands of entries on both sides
      EXPECT_LT(apart, 5e-4F) << "position " << row["position"];
      RecordProperty(fmt::format("apart_{}_{}", count, end - 1), fmt::format("{:.2e}", apart));
    }
    std::vector<int32_t> answer;
    for (const auto wanted = one["answer"].get<std::vector<int32_t>>(); answer.size() < wanted.size();) {
      answer.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
      ASSERT_EQ(answer.back(), wanted[answer.size() - 1]) << "token " << answer.size();
      logits = feed(model, cache, {&answer.back(), 1});
    }
  }
}

TEST(Gemma3, WeightsAsStoredHaveTheBitsOfF32) {
  if (!std::filesystem::exists(testing::gemma3_file())) {
    GTEST_SKIP() << testing::gemma3_file() << " is absent: run scripts/setup --gemma";
  }
  const OpenedModel opened = open_model(testing::gemma3_file());
  Transformer floats(opened.config, *opened.checkpoint, options_named("f32", ""));
  Transformer stored(opened.config, *opened.checkpoint, options_named("as stored", ""));
  EXPECT_LE(stored.weight_bytes(), static_cast<int64_t>(std::filesystem::file_size(testing::gemma3_file())));
  const std::vector<int32_t> tokens = opened.tokenizer->encode("Rivers of France: the Loire, the Seine and");
  KvCache own = stored.make_cache(), wanted = floats.make_cache();
  for (const std::span<const int32_t> part : {std::span(tokens).first(7), std::span(tokens).subspan(7, 1)}) {
    const std::span<const float> logits = feed(stored, own, part), expected = feed(floats, wanted, part);
    EXPECT_TRUE(std::ranges::equal(logits, expected));
  }
}

}  // namespace
}  // namespace kvarena
