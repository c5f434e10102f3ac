// A speculative model of its own: another checkpoint with another vocabulary, opened once, against a restatement over
// passes of one token.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "harness/engine/reuse/recovery.h"
#include "harness/engine/session/session.h"
#include "harness/model/open_model.h"
#include "harness/model/tokenizer/token_ranges.h"
#include "tests/methods/reuse/reused_prompt.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"
#include "tests/support/tiny_vocabulary.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int64_t kChunk = 64;
constexpr int64_t kQuestion = 20;
constexpr int64_t kNewTokens = 12;
constexpr double kRatio = 0.3;

/// Mean norms of the residual stream behind the last third of the layers (Eq. 1), a token at a time.
std::vector<double> importance_of(Transformer& model, const std::vector<int32_t>& tokens) {
  struct Norms final : AttentionHooks {
    explicit Norms(int64_t layers) : first(layers - (layers + 2) / 3), count(layers - first) {}
    [[nodiscard]] HookAccess reach() const override { return HookAccess::rows; }
    void after_layer(int64_t layer, const float* rows, int64_t, int64_t hidden) override {
      if (layer < first) return;
      const double squares =
          std::inner_product(rows, rows + hidden, rows, 0.0, std::plus<>(), [](double a, double b) { return a * b; });
      sum += std::sqrt(squares) / static_cast<double>(count);
    }
    int64_t first, count;
    double sum = 0;
  };
  KvCache cache = model.make_cache();
  std::vector<double> importance;
  for (const int32_t& token : tokens) {
    Norms norms(model.config().layers);
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &norms};
    (void)model.forward({&pass, 1});
    importance.push_back(norms.sum);
  }
  return importance;
}

class SpeculativeModelTest : public ::testing::Test {
 protected:
  SpeculativeModelTest() : target_(folder_ / "target"), reader_(folder_ / "reader") {
    testing::write_tiny_model(target_, 1);
    testing::write_vocabulary(target_, testing::ascii());
    testing::write_tiny_model(reader_, 2, 4);
    testing::write_vocabulary(reader_, testing::shuffled(),
                              {{'a', 'b'}, {'t', 'h'}, {'0', '1'}, {'(', ')'}, {'e', 'e'}});
    tokenizer_ = load_tokenizer(target_ / "tokenizer.json");
    method_ = make_method({{"name", "speccache"},
                           {"model", reader_.string()},
                           {"recompute", kRatio},
                           {"tau_cover", 2},
                           {"chunk", kChunk}},
                          "test");
  }

  static std::string text(uint64_t seed, size_t characters) {
    const std::vector<std::string> words = {"tab", "the", "01", "cabs()", "bee ", "10, ", "math", " deed", "\n", "eb"};
    const RandomStream draws(seed, "text");
    std::string text;
    for (uint64_t i = 0; text.size() < characters; ++i) text += words[draws.below(words.size(), i)];
    text.resize(characters);
    return text;
  }

  /// A prompt that nobody has read; its last characters are the question.
  Prefill prompt(const std::string& text) {
    Prefill prompt = unread_prompt(model_, tokenizer_->encode(text));
    prompt.layout = {.question = static_cast<int64_t>(text.size()) - kQuestion,
                     .text = text,
                     .ranges = token_ranges(*tokenizer_, prompt.tokens, text)};
    prompt.memory = memory_;
    return prompt;
  }

  void prime_for(const Prefill& prompt) { prime(model_, prompt.tokens, prompt.layout, *method_->reuser(), *memory_); }

  /// Characters of the context, which are the target's tokens, that the reader's most important tokens spell.
  static std::vector<int32_t> important_characters(const OpenedModel& opened, Transformer& reader,
                                                   const std::string& text) {
    const std::vector<int32_t> tokens = opened.tokenizer->encode(text);
    const std::vector<double> importance = importance_of(reader, tokens);
    std::vector<size_t> order(tokens.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return importance[a] > importance[b]; });
    order.resize(static_cast<size_t>(std::ceil(kRatio * static_cast<double>(tokens.size()))));
    std::vector<size_t> begins = {0};
    for (const int32_t& token : tokens) begins.push_back(begins.back() + opened.tokenizer->decode({&token, 1}).size());
    std::set<int32_t> characters;
    for (const size_t i : order) {
      for (size_t at = begins[i]; at < begins[i + 1]; ++at) characters.insert(static_cast<int32_t>(at));
    }
    EXPECT_EQ(begins.back(), text.size());
    EXPECT_LT(tokens.size(), text.size()) << "some of its tokens are two of the target's";
    std::erase_if(characters, [&](int32_t at) { return at >= std::ssize(text) - kQuestion; });
    return {characters.begin(), characters.end()};
  }

  /// Greedy tokens behind a cache out of chunks, of which `chosen` and the question are computed anew.
  std::vector<int32_t> answer(const std::vector<int32_t>& tokens, const std::vector<int32_t>& chosen) {
    KvCache cache = model_.make_cache();
    const int64_t context = std::ssize(tokens) - kQuestion;
    for (int64_t begin = 0; begin < context; begin += kChunk) {
      const auto own = std::span(tokens).subspan(begin, std::min(kChunk, context - begin));
      append_recovered(model_, *compute_chunk(model_, own), cache);
    }
    std::vector<int32_t> rows = chosen;
    for (int64_t position = context; position < std::ssize(tokens); ++position)
      rows.push_back(static_cast<int32_t>(position));
    std::span<const float> logits = model_.recompute({.tokens = tokens, .positions = rows, .cache = &cache}).logits;
    std::vector<int32_t> answer;
    while (true) {
      answer.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
      if (std::ssize(answer) == kNewTokens) return answer;
      const SequencePass pass{.tokens = std::span(answer).last(1), .cache = &cache};
      logits = model_.forward({&pass, 1});
    }
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path target_, reader_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer model_ = testing::tiny_model();
  std::unique_ptr<Method> method_;
  std::shared_ptr<ReuseMemory> memory_ = std::make_shared<ReuseMemory>();
};

TEST_F(SpeculativeModelTest, IsOpenedOnceAndAnswersAreThoseOfARestatement) {
  const std::vector<std::string> texts = {text(1, 300), text(2, 257), text(3, 401)};
  std::vector<std::vector<int32_t>> chosen;
  {
    const OpenedModel opened = open_model(reader_);
    Transformer reader(opened.config, *opened.checkpoint, {});
    for (const std::string& one : texts) chosen.push_back(important_characters(opened, reader, one));
  }
  prime_for(prompt(texts.front()));
  std::filesystem::remove_all(reader_);  // no request opens it once more
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(i);
    const Prefill unread = prompt(texts[i]);
    ASSERT_EQ(unread.tokens.size(), texts[i].size());
    const auto session = start_session(model_, unread, *method_, {.stop = {.max_new_tokens = kNewTokens}});
    Session* const one[] = {session.get()};
    run_together(model_, one);
    ASSERT_TRUE(session->reuse);
    EXPECT_EQ(session->reuse->recomputed, chosen[i]);
    EXPECT_EQ(session->tokens, answer(unread.tokens, chosen[i]));
  }
}

TEST_F(SpeculativeModelTest, AnAbsentOneIsRefusedBeforeAnyRequest) {
  std::filesystem::remove_all(reader_);
  EXPECT_THROW(prime_for(prompt(text(1, 100))), UserError);
}

TEST_F(SpeculativeModelTest, APromptBeyondItsWindowIsExplained) {
  json config = json::parse(std::ifstream(reader_ / "config.json"));
  config["max_position_embeddings"] = 64;
  std::ofstream(reader_ / "config.json") << config;
  const Prefill unread = prompt(text(1, 300));
  prime_for(unread);
  const std::string error = testing::error_of(
      [&] { (void)reuse_prompt(model_, unread.tokens, unread.layout, *method_->reuser(), *memory_); });
  EXPECT_NE(error.find("speculative model " + reader_.string()), std::string::npos) << error;
  EXPECT_NE(error.find("at most 64, its window"), std::string::npos) << error;
}

}  // namespace
}  // namespace kvarena
