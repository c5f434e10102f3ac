// The driver of fits: a fit that was killed ends with the bytes of one that was not.

#include "harness/engine/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

/// Stops after so many calls of collect() and solve(), as a kill would.
class Killed final : public Fitter {
 public:
  Killed(const Fitter& inner, int64_t calls) : inner_(&inner), left_(calls) {}
  FittedRequest artifact() const override { return inner_->artifact(); }
  Needs needs() const override { return inner_->needs(); }
  int64_t sample_tokens() const override { return inner_->sample_tokens(); }
  bool half() const override { return inner_->half(); }
  bool joint() const override { return inner_->joint(); }
  FittedTensors join(std::vector<FittedTensors> layers) const override { return inner_->join(std::move(layers)); }
  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    count();
    return inner_->collect(layer, draws);
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    count();
    return inner_->solve(records, draws);
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return inner_->assemble(layers); }

 private:
  void count() const {
    if (left_-- == 0) throw std::runtime_error("killed");
  }
  const Fitter* inner_;
  mutable int64_t left_;
};

class FitDriver : public ::testing::TestWithParam<std::string> {
 protected:
  FitDriver()
      : model_(testing::tiny_model()),
        facts_(model_facts(model_)),
        fitter_(make_method(nlohmann::json::parse(GetParam()), "test")->fitter()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~FitDriver() override { fs::remove_all(folder_); }

  [[nodiscard]] FitTask task(const std::string& file, uint64_t seed = 1) const {
    return {.texts = {testing::tiny_prompt(80, 1), testing::tiny_prompt(70, 2), testing::tiny_prompt(60, 3)},
            .seed = seed,
            .output = folder_ / file};
  }
  FittedWeights run(const Fitter& fitter, const FitTask& task) {
    Progress quiet({.style = ProgressOptions::Style::quiet});
    return fit(model_, facts_, fitter, task, quiet);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::unique_ptr<Fitter> fitter_;
  fs::path folder_ = fs::temp_directory_path() / fmt::format("kvarena_fit_test_{}", getpid());
};

TEST_P(FitDriver, ResumedEqualsUninterrupted) {
  const FittedWeights whole = run(*fitter_, task("whole.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "whole.safetensors.partial"));
  for (const int64_t calls : {0, 4, 8, 9, 10}) {  // 3 texts of 3 layers, then 3 layers to solve, or all at once
    if (fitter_->joint() && calls > 9) continue;
    const FitTask again = task(fmt::format("resumed{}.safetensors", calls));
    EXPECT_THROW((void)run(Killed(*fitter_, calls), again), std::runtime_error);
    EXPECT_FALSE(fs::exists(again.output));
    const FittedWeights resumed = run(*fitter_, again);
    EXPECT_EQ(read_file(again.output), read_file(whole.place)) << "killed after " << calls;
  }
}

TEST_P(FitDriver, SaysWhereItComesFromAndKeepsNothingOfAnotherTask) {
  const FittedWeights weights = run(*fitter_, task("a.safetensors"));
  EXPECT_EQ(weights.metadata.at("model"), "tiny");
  EXPECT_EQ(weights.metadata.at("seed"), "1");
  EXPECT_EQ(weights.metadata.at("texts"), "3");
  EXPECT_EQ(weights.metadata.at(kFittedFingerprint), model_.fingerprint());
  EXPECT_EQ(weights.metadata.at(kFittedMethod), fitter_->artifact().stem());

  FitTask other = task("b.safetensors");
  other.texts[0] = testing::tiny_prompt(80, 9);
  EXPECT_THROW((void)run(Killed(*fitter_, 9), other), std::runtime_error);
  (void)run(*fitter_, task("b.safetensors"));  // finds the other task's work
  EXPECT_EQ(read_file(folder_ / "b.safetensors"), read_file(folder_ / "a.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Fitters, FitDriver,
                         ::testing::Values(R"({"name":"kvzap","keep":1,"kind":"linear"})",
                                           R"({"name":"kvzap","keep":1,"kind":"mlp"})",
                                           R"({"name":"fast_kvzip","keep":1})", R"({"name":"duo_attention"})",
                                           R"({"name":"expected_attention","keep":1})",
                                           R"({"name":"specontext","keep":1})"),
                         [](const auto& info) { return fmt::format("fitter{}", info.index); });

TEST(Fit, NeedsTexts) {
  Transformer model = testing::tiny_model();
  const auto fitter = make_method({{"name", "duo_attention"}}, "test")->fitter();
  Progress quiet({.style = ProgressOptions::Style::quiet});
  EXPECT_THROW((void)fit(model, model_facts(model), *fitter, {.output = "none"}, quiet), UserError);
}

}  // namespace
}  // namespace kvarena
