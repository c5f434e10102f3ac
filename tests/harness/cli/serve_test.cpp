// Command lines of `kvarena serve` that are refused before anything is served.

#include <gtest/gtest.h>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

Finished serve(const std::string& model, std::vector<std::string> options) {
  options.insert(options.begin(), {"serve", "--model", model, "--port", "0"});
  return run_kvarena(options, {.environment = {{"KVARENA_SERVE_KEY", ""}}});
}

TEST(Serve, RefusesWhatItCannotServe) {
  const TinyModelFolder tiny;
  expect_refused(serve(tiny.path(), {"--host", "0.0.0.0"}), "KVARENA_SERVE_KEY");
  expect_refused(serve(tiny.path(), {"--host", "203.0.113.1"}), "KVARENA_SERVE_KEY");
  expect_refused(serve(tiny.path(), {"--host", "127.0.0.1.example"}), "KVARENA_SERVE_KEY");
  expect_refused(serve(tiny.path(), {"--timeout", "0"}), "--timeout: found 0");
  expect_refused(serve(tiny.path(), {"--max-running", "64", "--pass-tokens", "64"}), "raise pass_tokens");
  expect_refused(serve(tiny.path(), {"--method", "snapkv:kep=0.5"}), "kep");
  expect_refused(serve(tiny.path(), {"--method", "snapkv:keep=0.5", "--method", "snapkv:keep=0.5"}), "a second time");
  expect_refused(serve(tiny.path(), {"--method", "vericache:schedule=staggered,drafter=(snapkv:keep=0.5)"}),
                 "a verification schedule");
  expect_refused(serve(tiny.path(), {"--method", "lfu"}), "places many contexts");
}

}  // namespace
}  // namespace kvarena::testing
