#pragma once
// A registered method with settings under which it acts, on a tiny model for which it was fitted where it has to be:
// one whose layers all hold entries, or one where they take turns with recurrent ones.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/hybrid_model.h"

namespace kvarena::testing {

using nlohmann::json;

/// A checkpoint on disk for methods that draft with one: another model than the target, of its vocabulary.
const std::string& drafting_model();

/// An adapter of the tiny model whose tokens restore.
const std::string& restoring_adapter();

/// Settings that make a method act on prompts of a few hundred tokens: half the entries where it has a budget, the
/// cheapest drafter where it needs one, defaults otherwise.
json active_settings(const MethodEntry& entry);

/// Behind a method's name: on a model whose first and third layers slide, or where layers that hold entries take turns
/// with recurrent ones.
inline constexpr std::string_view kSliding = "_on_sliding_layers", kHybrid = "_on_recurrent_layers";

/// The tiny model with two layers more that see a window of less than a prompt, between those of before.
ModelConfig sliding_config();

/// The parameter is the method's name, and behind it perhaps kSliding or kHybrid.
class RegisteredMethod : public ::testing::TestWithParam<std::string> {
 protected:
  RegisteredMethod();

  [[nodiscard]] static bool slides() { return GetParam().ends_with(kSliding); }
  [[nodiscard]] static bool is_hybrid() { return GetParam().ends_with(kHybrid); }

  static std::filesystem::path fitted_folder();
  /// A method with weights gets some, fitted on two short prompts.
  void SetUp() override;
  void TearDown() override { std::filesystem::remove_all(fitted_folder()); }

  [[nodiscard]] const MethodEntry& entry() const { return *find_method(GetParam().substr(0, GetParam().find("_on_"))); }
  void expect_refused(const Method& method);

  /// A prompt in which half of the tokens are results of tools.
  [[nodiscard]] Prefill prompt(int64_t tokens, uint64_t seed = 7);

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
};

std::vector<std::string> method_names();

/// All methods on layers of another kind.
std::vector<std::string> method_names_on(std::string_view layers);

}  // namespace kvarena::testing
