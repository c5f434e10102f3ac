// Cartridges: a checkpoint of the authors' TrainableCache and the logits behind it in their code
// (tests/golden/cartridges.py), artifacts, and what a request holds.

#include "harness/core/progress.h"
#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "tests/methods/reuse/reused_prompt.h"
#include "tests/support/error_of.h"
#include "tests/support/imported_weights.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::FullPrompt;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr const char* kCheckpoint = KVARENA_SOURCE_DIR "/tests/golden/cartridges";

Transformer exact_model() { return tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32}); }

class Cartridges : public ::testing::Test {
 protected:
  /// The authors' cartridge as an artifact for the model.
  [[nodiscard]] static json imported_for(const Transformer& model) {
    return {{"name", "cartridges"}, {"weights", testing::imported(model, "cartridges", kCheckpoint)}};
  }
  /// The first entries of a text as an artifact.
  [[nodiscard]] json fitted_on(Transformer& model, const std::vector<int32_t>& text, int64_t entries) const {
    const std::string file = (folder_ / "begun.safetensors").string();
    const auto fitter = make_method({{"name", "cartridges"}, {"entries", entries}}, "test")->fitter();
    Progress quiet({.style = ProgressOptions::Style::quiet});
    (void)fit(model, model_facts(model), *fitter, {.method = "cartridges", .texts = {text}, .output = file}, quiet);
    return {{"name", "cartridges"}, {"weights", file}};
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Cartridges, AnswersBehindTheAuthorsCheckpointAsTheirCode) {
  Transformer model = exact_model();
  const json spec = imported_for(model), golden = testing::golden("cartridges.json");
  const auto question = golden["question"].get<std::vector<int32_t>>();
  for (const int64_t context : {9, 60, 700}) {
    for (size_t i = 0; i < question.size(); ++i) {
      std::vector<int32_t> tokens = tiny_prompt(context);  // which no one reads
      tokens.insert(tokens.end(), question.begin(), question.begin() + static_cast<int64_t>(i) + 1);
      const ReusedPrompt reused = run(model, tokens, {.question = context}, spec);
      const auto expected = golden["logits"][i].get<std::vector<double>>();
      for (size_t c = 0; c < expected.size(); ++c)
        EXPECT_NEAR(reused.logits[8 * c], expected[c], 1e-3) << i << " " << c;
      EXPECT_EQ(reused.record.reused, context);
      EXPECT_TRUE(reused.record.recomputed.empty());
      EXPECT_EQ(reused.cache.layers[0].entries(0), golden["entries"].get<int64_t>() + static_cast<int64_t>(i) + 1);
    }
  }
}

TEST_F(Cartridges, EntriesOfAContextItselfSayWhatItDoes) {
  Transformer model = exact_model();
  const std::vector<int32_t> context = tiny_prompt(96), question = tiny_prompt(13, 4);
  const json spec = fitted_on(model, context, 64);
  std::vector<int32_t> asked(context.begin(), context.begin() + 64), longer = context;
  asked.insert(asked.end(), question.begin(), question.end());
  longer.insert(longer.end(), question.begin(), question.end());
  const FullPrompt full(model, asked);
  const ReusedPrompt reused = run(model, longer, {.question = 96}, spec);
  for (size_t i = 0; i < full.logits.size(); ++i) EXPECT_NEAR(reused.logits[i], full.logits[i], 1e-3) << i;
  const int64_t cell = 16 * model.layer_shape(0).entry_bytes() * std::ssize(reused.cache.layers);
  EXPECT_LE(reused.cache.bytes(), 5 * cell + cell / 8) << "64 entries and the question's cell";
}

TEST_F(Cartridges, AContextThatIsNoLongerIsRead) {
  Transformer model = tiny_model();
  const json spec = fitted_on(model, tiny_prompt(96), 64);
  testing::expect_full(model, tiny_prompt(80, 3), {.question = 64}, spec);
}

TEST_F(Cartridges, ThoseOfAnotherModelAreRefused) {
  const Transformer trained = tiny_model(1);
  Transformer other = tiny_model(2);
  const json spec = imported_for(trained);
  const std::string said = error_of([&] { (void)run(other, tiny_prompt(60), {}, spec); });
  EXPECT_NE(said.find("cartridges.safetensors: found weights for tiny (fingerprint"), std::string::npos) << said;
  const std::string bare = error_of([&] {
    (void)run(other, tiny_prompt(60), {}, {{"name", "cartridges"}, {"weights", kCheckpoint}});
  });
  EXPECT_NE(bare.find("do not say which model"), std::string::npos) << bare;
  const std::string absent = error_of([&] { (void)run(other, tiny_prompt(60), {}, {{"name", "cartridges"}}); });
  EXPECT_NE(absent.find("kvarena fit cartridges"), std::string::npos) << absent;
}

}  // namespace
}  // namespace kvarena
