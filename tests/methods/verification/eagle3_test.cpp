// EAGLE-3: heads and trees against their authors' code (tests/golden/eagle3.py), and that what is emitted stays true to
// the target.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/draft/draft_tree.h"
#include "harness/engine/fit.h"
#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/session.h"
#include "harness/method/draft_head.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "tests/support/error_of.h"
#include "tests/support/imported_weights.h"
#include "tests/support/random_entries.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;
using testing::tiny_prompt;

const std::string kDrafter = KVARENA_SOURCE_DIR "/tests/golden/eagle3_drafter";

class Eagle3 : public ::testing::Test {
 protected:
  struct Decoded {
    std::vector<int32_t> tokens;
    std::vector<std::vector<float>> logits;
    std::vector<VerifyRound> rounds;
  };
  Decoded decode(const Prefill& prompt, const json& spec, double temperature, int64_t tokens = 60) {
    const auto method = make_method(spec, "test");
    Decoded result;
    SessionOptions options{.stop = {.max_new_tokens = tokens}, .sampling = {.temperature = temperature, .seed = 5}};
    options.on_logits = [&](int64_t, std::span<const float> row) {
      result.logits.emplace_back(row.begin(), row.end());
    };
    const auto session = start_session(model_, prompt, *method, options);
    Session* const sessions[] = {session.get()};
    run_together(model_, sessions);
    result.tokens = session->tokens;
    result.rounds = session->rounds;
    return result;
  }
  Prefill read(int64_t n, const json& spec) {
    return prefill(model_, tiny_prompt(n), make_method(spec, "test")->needs(), kPrefillChunk, facts_);
  }
  [[nodiscard]] json drafting(int64_t length) const {  // a chain
    return {{"name", "eagle3"}, {"weights", head_}, {"draft_length", length}, {"top_k", 1}};
  }

  const json golden_ = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/eagle3.json"));
  Transformer model_ = testing::tiny_model(1, {.weights = DType::f32, .cache = DType::f32});
  std::shared_ptr<ModelFacts> facts_ = model_facts(model_);
  const std::string head_ = testing::imported(model_, "eagle3", kDrafter);
};

TEST_F(Eagle3, LogitsAreThoseOfTheAuthorsCode) {
  const DraftHead head(read_fitted(kDrafter), *facts_, 1, DType::f32);
  const auto tokens = golden_["tokens"].get<std::vector<int32_t>>();
  const int64_t n = static_cast<int64_t>(tokens.size()) - 1;
  const std::vector<float> features = random_floats(n * 192, "features", 2);
  std::vector<float> embeddings(static_cast<size_t>(n * 64));
  std::vector<float> hidden(embeddings.size());
  facts_->embed(std::span(tokens).subspan(1), embeddings.data());
  head.fuse(features.data(), n, hidden.data());
  for (const int64_t part : {n, int64_t{7}}) {  // at once, and cut in parts
    KvCache cache(1, head.shape());
    std::vector<float> out(hidden.size());
    for (int64_t first = 0; first < n; first += part) {
      head.run({.embeddings = &embeddings[first * 64],
                .hidden = &hidden[first * 64],
                .count = std::min(part, n - first),
                .position = first,
                .seen = {}},
               cache.layers.front(), &out[first * 64]);
    }
    std::vector<float> logits(static_cast<size_t>(n * head.draft_vocab()));
    head.predict(out.data(), n, logits.data());
    for (const auto& [row, want] : golden_["logits"].items()) {
      const auto expected = want.get<std::vector<double>>();
      ASSERT_EQ(static_cast<int64_t>(expected.size()), head.draft_vocab());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(logits[std::stoul(row) * expected.size() + i], expected[i], 1e-4) << row << " " << i;
      }
    }
  }
}

TEST_F(Eagle3, OutputIsThatOfFullKvWhateverTheHeadSays) {
  for (const int64_t n : {1, 130}) {
    const Prefill prompt = read(n, drafting(3));
    for (const double temperature : {0.0, 0.9}) {
      const Decoded full = decode(prompt, {{"name", "full"}}, temperature);
      for (const int64_t length : {1, 4, 20}) {
        for (const char* sampling : {"coupled", "greedy"}) {
          json spec = drafting(length);
          spec["draft_sampling"] = sampling;
          const Decoded found = decode(prompt, spec, temperature);
          EXPECT_EQ(found.tokens, full.tokens) << n << " " << temperature << " " << length << " " << sampling;
          EXPECT_EQ(found.logits, full.logits) << n << " " << temperature << " " << length << " " << sampling;
        }
      }
    }
  }
}

TEST_F(Eagle3, TreesAreThoseOfTheAuthorsCode) {
  const DraftHead head(read_fitted(kDrafter), *facts_, 1, DType::f32);
  const auto tokens = golden_["tokens"].get<std::vector<int32_t>>();
  const int64_t n = static_cast<int64_t>(tokens.size()) - 1;
  const std::vector<float> features = random_floats(n * 192, "features", 2);
  std::vector<float> embeddings(static_cast<size_t>(n * 64));
  std::vector<float> hidden(embeddings.size());
  std::vector<float> out(embeddings.size());
  facts_->embed(std::span(tokens).subspan(1), embeddings.data());
  head.fuse(features.data(), n, hidden.data());
  KvCache cache(1, head.shape());
  head.run({.embeddings = embeddings.data(), .hidden = hidden.data(), .count = n, .position = 0, .seen = {}},
           cache.layers.front(), out.data());
  cache.length = n;
  for (const json& want : golden_["trees"]) {
    const TreeShape shape{.depth = want["depth"].get<int64_t>() + 1,
                          .beams = want["top_k"].get<int64_t>(),
                          .tokens = want["total"].get<int64_t>()};
    const DraftTree tree = grow_tree(head, *facts_, cache, std::span(out).last(64), shape);
    EXPECT_EQ(tree.tokens, want["tokens"].get<std::vector<int32_t>>()) << want;
    EXPECT_EQ(tree.parents, want["parents"].get<std::vector<int32_t>>()) << want;
    EXPECT_EQ(cache.layers.front().entries(0), n);
  }
}

TEST_F(Eagle3, TreesGiveTheBitsOfPlainDecoding) {
  for (const int64_t n : {1, 300}) {
    const Prefill prompt = read(n, drafting(3));
    for (const double temperature : {0.0, 0.9}) {
      const Decoded full = decode(prompt, {{"name", "full"}}, temperature);
      int64_t accepted = 0;
      for (const char* sampling : {"coupled", "rejection"}) {
        const json spec = {{"name", "eagle3"}, {"weights", head_},  {"draft_length", 4},
                           {"top_k", 5},       {"tree_tokens", 30}, {"draft_sampling", sampling}};
        const Decoded found = decode(prompt, spec, temperature);
        EXPECT_EQ(found.tokens, full.tokens) << n << " " << temperature << " " << sampling;
        EXPECT_EQ(found.logits, full.logits) << n << " " << temperature << " " << sampling;
        for (const VerifyRound& round : found.rounds) accepted += round.accepted;
      }
      EXPECT_GT(accepted, 0);
    }
  }
}

TEST_F(Eagle3, ACompressedCacheThatIsDraftedForStaysTrueToFullKv) {
  const json spec = {{"name", "vericache"},
                     {"drafter", {{"name", "knorm"}, {"keep", 0.5}}},
                     {"draft_length", 3},
                     {"aux", {{"name", "eagle3"}, {"weights", head_}, {"draft_length", 2}}}};
  for (const int64_t n : {1, 130}) {
    const Prefill prompt = read(n, spec);
    for (const double temperature : {0.0, 0.9}) {
      const Decoded full = decode(prompt, {{"name", "full"}}, temperature);
      const Decoded found = decode(prompt, spec, temperature);
      EXPECT_EQ(found.tokens, full.tokens) << n << " " << temperature;
      EXPECT_EQ(found.logits, full.logits) << n << " " << temperature;
    }
  }
}

TEST_F(Eagle3, AHeadOfAnotherModelIsRefused) {
  FittedWeights weights = read_fitted(kDrafter);
  weights.tensors["fc.weight"].shape = {32, 384};
  EXPECT_THROW(DraftHead(weights, *facts_, 1, DType::f32), UserError);
  weights = read_fitted(kDrafter);
  weights.tensors["d2t"].values.back() = 1000;  // behind the model's vocabulary
  EXPECT_THROW(DraftHead(weights, *facts_, 1, DType::f32), UserError);
  weights = read_fitted(kDrafter);
  weights.metadata["num_attention_heads"] = "3";
  EXPECT_THROW(DraftHead(weights, *facts_, 1, DType::f32), UserError);
  EXPECT_THROW((void)decode(read(20, drafting(3)), {{"name", "eagle3"}, {"weights", "/nowhere"}}, 0), UserError);

  // A sibling's head has the shapes of the model's own.
  const std::string siblings = testing::imported(testing::tiny_model(2), "eagle3", kDrafter);
  const auto refused = [&](const std::string& head) {
    const json spec = {{"name", "eagle3"}, {"weights", head}};
    return testing::error_of([&] { (void)decode(read(20, spec), spec, 0); });
  };
  const std::string own = "expected weights for tiny (fingerprint " + facts_->fingerprint.substr(0, 12) + ")";
  const std::string foreign = refused(siblings), raw = refused(kDrafter);
  EXPECT_NE(foreign.find(siblings + ": found weights for tiny (fingerprint "), std::string::npos) << foreign;
  EXPECT_NE(foreign.find(own), std::string::npos) << foreign;
  EXPECT_NE(raw.find(kDrafter + ": found weights that do not say which model they are for, " + own), std::string::npos)
      << raw;
  EXPECT_NE(raw.find("`kvarena fit eagle3 --from " + kDrafter + " --model ...`"), std::string::npos) << raw;
}

TEST_F(Eagle3, AnImportedDrafterHasThePublishedTensorsAndIsFoundByItsModel) {
  const testing::TemporaryFolder folder;
  const auto fitter = make_method({{"name", "eagle3"}}, "test")->fitter();
  const FittedWeights made = import_fitted(*facts_, *fitter, kDrafter, folder / "tiny" / "eagle3.safetensors");
  const FittedWeights drafter = read_fitted(kDrafter, draft_head_tensors());
  EXPECT_EQ(made.tensors.size(), 14U) << "fc, seven projections, four norms, the output and its tokens";
  ASSERT_EQ(made.tensors.size(), drafter.tensors.size());
  for (const auto& [name, tensor] : drafter.tensors) EXPECT_EQ(made.tensors.at(name).values, tensor.values) << name;
  facts_ = model_facts(model_, {folder.path()});
  json found = drafting(3);
  found.erase("weights");
  const Prefill prompt = read(60, found);
  const std::vector<VerifyRound> rounds = decode(prompt, found, 0).rounds,
                                 named = decode(prompt, drafting(3), 0).rounds;
  ASSERT_EQ(rounds.size(), named.size());
  for (size_t i = 0; i < rounds.size(); ++i) EXPECT_EQ(rounds[i].accepted, named[i].accepted) << i;
}

TEST_F(Eagle3, AFitIsReproducibleAndBetterThanChance) {
  // A random model's output is hard to learn; one draft in 128 would be right by chance.
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena-head-" + std::to_string(::getpid()));
  const auto method = make_method({{"name", "eagle3"}}, "test");
  std::vector<std::vector<int32_t>> texts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Prefill start = prefill(model_, tiny_prompt(5, seed), {}, kPrefillChunk, facts_);
    texts.push_back(tiny_prompt(5, seed));
    const Decoded own = decode(start, {{"name", "full"}}, 0, 60);
    texts.back().insert(texts.back().end(), own.tokens.begin(), own.tokens.end());
  }
  Progress quiet({.style = ProgressOptions::Style::quiet});
  const auto file = folder / "head.safetensors";
  const FittedWeights weights =
      fit(model_, facts_, *method->fitter(), {.method = "eagle3", .texts = texts, .output = file}, quiet);
  const FittedWeights again =
      fit(model_, facts_, *method->fitter(), {.method = "eagle3", .texts = texts, .output = file}, quiet);
  EXPECT_EQ(weights.tensors.at("fc.weight").values, again.tensors.at("fc.weight").values);

  const json spec = {{"name", "eagle3"}, {"weights", file.string()}, {"draft_length", 3}, {"top_k", 1}};
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Prefill start =
        prefill(model_, tiny_prompt(5, seed), make_method(spec, "test")->needs(), kPrefillChunk, facts_);
    for (const VerifyRound& round : decode(start, spec, 0, 60).rounds) {
      drafted += round.drafted;
      accepted += round.accepted;
    }
  }
  EXPECT_GT(128 * accepted, 4 * drafted) << accepted << " of " << drafted;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvarena
