// Where models are found: by path, by name, and in the cache of Hugging Face's hub.

#include "harness/core/home.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/core/files.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

/// A hub's cache with org/Name-3.1, revision abc.
class Hub : public ::testing::Test {
 protected:
  Hub() {
    fs::create_directories(model_ / "refs");
    fs::create_directories(snapshot_);
    write_file(model_ / "refs" / "main", "abc\n");
    setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
  }
  ~Hub() override { unsetenv("HF_HUB_CACHE"); }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  testing::TemporaryFolder folder_;
  fs::path model_ = folder_ / "models--org--Name-3.1";
  fs::path snapshot_ = model_ / "snapshots" / "abc";
};

TEST_F(Hub, ANameStandsForTheMainSnapshot) {
  EXPECT_EQ(hub_snapshot("org/Name-3.1"), snapshot_);
  EXPECT_EQ(find_model("org/Name-3.1"), snapshot_);
  EXPECT_EQ(find_model(model_.string()), snapshot_) << "the cache's own folder";
  EXPECT_EQ(find_model(snapshot_.string()), snapshot_);
  write_file(model_ / "refs" / "main", "def");
  EXPECT_EQ(hub_snapshot("org/Name-3.1"), std::nullopt) << "a revision that is not there";
}

TEST_F(Hub, WhatIsAbsentSaysHowToGetIt) {
  EXPECT_EQ(hub_snapshot("org/other"), std::nullopt);
  EXPECT_EQ(testing::error_of([] { (void)find_model("org/other"); }),
            "org/other: found nothing there, expected a model: a folder in Hugging Face layout or a .gguf file; "
            "`hf download org/other` brings one of the hub");
  EXPECT_EQ(testing::error_of([] { (void)find_model("./other"); }),
            "./other: found nothing there, expected a model: a folder in Hugging Face layout or a .gguf file");
}

TEST(Home, NamesOnTheHubHaveOneSlash) {
  for (const char* name : {"org/name", "Qwen/Qwen2.5-0.5B_x"}) EXPECT_TRUE(is_hub_name(name)) << name;
  for (const char* name : {"", "/", "name", "/name", "org/", "a/b/c", "../x", "./x", "a b/c"}) {
    EXPECT_FALSE(is_hub_name(name)) << name;
  }
}

TEST(Home, AModelIsNamedByItsPath) {
  EXPECT_EQ(model_name("x/Llama-3.1-8B"), "Llama-3.1-8B") << "a dot begins no ending here";
  EXPECT_EQ(model_name("x/Llama-3.1-8B/"), "Llama-3.1-8B");
  EXPECT_EQ(model_name("x/a.Q4_1.gguf"), "a.Q4_1");
  EXPECT_EQ(model_name("hub/models--org--Name-3.1/snapshots/abc"), "Name-3.1");
}

}  // namespace
}  // namespace kvarena
