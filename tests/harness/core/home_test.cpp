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

TEST_F(Hub, ARevisionIsABranchOrTheBeginningOfACommit) {
  const fs::path other = model_ / "snapshots" / "0a1b2c3d";
  fs::create_directories(other);
  write_file(model_ / "refs" / "v2", "0a1b2c3d");
  EXPECT_EQ(find_model("org/Name-3.1@v2"), other);
  EXPECT_EQ(find_model("org/Name-3.1@0a1b"), other);
  EXPECT_EQ(find_model("org/Name-3.1@abc"), snapshot_);
  EXPECT_EQ(hub_snapshot("org/Name-3.1@ffff"), std::nullopt);
}

TEST_F(Hub, ModelsOfAllProgramsAreFound) {
  setenv("KVARENA_HOME", (folder_ / "home").c_str(), 1);
  setenv("LLAMA_CACHE", (folder_ / "llama").c_str(), 1);
  setenv("OLLAMA_MODELS", (folder_ / "ollama").c_str(), 1);
  const fs::path manifests = folder_ / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "gemma3";
  for (const fs::path& made :
       {folder_ / "home" / "models" / "tiny", folder_ / "llama", manifests, folder_ / "ollama" / "blobs"}) {
    fs::create_directories(made);
  }
  write_file(folder_ / "llama" / "a.gguf", "");
  write_file(folder_ / "llama" / "a.json", "");
  write_file(folder_ / "ollama" / "blobs" / "sha256-12", "");
  write_file(manifests / "270m",
             R"({"layers": [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:99"},
                            {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"}]})");
  write_file(manifests / "gone",
             R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:13"}]})");
  write_file(manifests / "broken", "{");
  std::vector<std::string> found;
  for (const FoundModel& model : found_models()) found.push_back(model.place + " " + model.name);
  EXPECT_EQ(found,
            (std::vector<std::string>{"KVARENA_HOME tiny", "Hugging Face org/Name-3.1",
                                      "llama.cpp " + (folder_ / "llama" / "a.gguf").string(),
                                      "Ollama, gemma3:270m " + (folder_ / "ollama" / "blobs" / "sha256-12").string()}));
  for (const char* variable : {"KVARENA_HOME", "LLAMA_CACHE", "OLLAMA_MODELS"}) unsetenv(variable);
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
