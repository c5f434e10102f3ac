// The conformance suite over the registered methods and those of the plugins that KVARENA_PLUGINS names.

#include <gtest/gtest.h>

#include <cstdio>

#include "harness/core/error.h"
#include "harness/method/plugins.h"

int main(int argc, char** argv) {
  try {
    kvarena::load_plugins(kvarena::plugins_of_environment());  // before GoogleTest asks the registry for names
  } catch (const kvarena::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 0) return failed;
  std::fprintf(
      stderr,
      "no test matches the filter %s; a method's own tests are --gtest_filter='*/NAME', and a plugin's methods "
      "are there when KVARENA_PLUGINS names its library\n",
      ::testing::GTEST_FLAG(filter).c_str());
  return 1;
}
