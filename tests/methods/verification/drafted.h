#pragma once
// Sessions of the tiny model under verifiers, against fixtures of tests/golden/speculation.py, and checkpoints that
// draft for it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "tests/support/decoding.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::testing {

class Drafts : public ::testing::Test {
 protected:
  static std::filesystem::path folder() {
    return std::filesystem::temp_directory_path() / ("kvarena-drafts-" + std::to_string(::getpid()));
  }
  static void SetUpTestSuite() {
    write_tiny_model(folder() / "twin", 1);
    write_tiny_model(folder() / "other", 2);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }

  Decoded decode(const Prefill& prompt, const nlohmann::json& spec, SessionOptions options) {
    const int64_t new_tokens = options.stop.max_new_tokens;
    return kvarena::testing::decode(model_, prompt, spec, new_tokens, std::move(options));
  }

  Transformer model_ = tiny_model();
};

/// Compares tokens and rounds with every case of speculation/METHOD.json, in float32; `complete` adds to the settings.
template <class Complete>
void expect_golden_rounds(const std::string& method_name, const Complete& complete) {
  Transformer model = tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const nlohmann::json cases = golden("speculation/" + method_name + ".json")["cases"];
  ASSERT_GE(cases.size(), 2U);
  for (const nlohmann::json& one : cases) {
    nlohmann::json spec = one["spec"];
    complete(one, spec);
    SCOPED_TRACE(spec.dump());
    const auto tokens = one["tokens"].get<std::vector<int32_t>>();
    const Prefill prompt =
        prefill(model, one["prompt"].get<std::vector<int32_t>>(), make_method(spec, "golden")->needs());
    const Decoded found = decode(model, prompt, spec, static_cast<int64_t>(tokens.size()));
    EXPECT_EQ(found.tokens, tokens);
    nlohmann::json rounds = nlohmann::json::array();
    int64_t accepted = 0;
    for (const VerifyRound& round : found.rounds) {
      rounds.push_back({round.drafted, round.accepted});
      accepted += round.accepted;
    }
    EXPECT_EQ(rounds, one["rounds"]);
    EXPECT_EQ(accepted, found.activity.tokens_accepted);
  }
}
inline void expect_golden_rounds(const std::string& method_name) {
  expect_golden_rounds(method_name, [](const nlohmann::json&, nlohmann::json&) {});
}

}  // namespace kvarena::testing
