// kvarena new-method: what it writes and what it refuses. skeleton_test compiles and runs the texts themselves.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

namespace fs = std::filesystem;

TEST(NewMethod, WritesIntoTheSourceTreeAroundTheWorkingFolder) {
  const ScratchFolder tree;
  fs::create_directories(tree / "methods/compression");
  fs::create_directories(tree / "methods/retrieval/deep");
  std::ofstream(tree / "methods/CMakeLists.txt") << "#";
  const RunSetup inside{.folder = tree / "methods/retrieval/deep"};
  const Finished finished = run_kvarena({"new-method", "my_idea", "--family", "dropping"}, inside);
  ASSERT_EQ(finished.code, 0) << finished.err;
  std::ifstream file(tree / "methods/compression/my_idea.cpp");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(contains(text, "class MyIdeaScorer final : public Scorer")) << text;
  EXPECT_TRUE(contains(text, ".name = \"my_idea\""));
  EXPECT_TRUE(contains(text, ".title = \"My idea\""));
  EXPECT_FALSE(contains(text, "@"));
}

TEST(NewMethod, ClassNamesDoNotDouble) {
  const ScratchFolder scratch;
  const auto text_of = [&](const std::string& name, const std::string& family) {
    const fs::path path = scratch / (name + ".cpp");
    EXPECT_EQ(run_kvarena({"new-method", name, "--family", family, "--out", path.string()}).code, 0);
    std::ifstream file(path);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_TRUE(contains(text_of("my_codec", "codec"), "class MyCodec final"));
  EXPECT_TRUE(contains(text_of("my_retrieval", "retrieval"), "class MyRetrieval final"));
  EXPECT_TRUE(contains(text_of("plain", "codec"), "class PlainCodec final"));
  EXPECT_TRUE(contains(text_of("codec", "codec"), "class CodecCodec final")) << "Codec is the base";
}

TEST(NewMethod, NeverOverwrites) {
  const ScratchFolder scratch;
  const fs::path file = scratch / "mine.cpp";
  std::ofstream(file) << "precious";
  expect_refused(run_kvarena({"new-method", "mine", "--family", "codec", "--out", file.string()}), "never overwritten");
  std::ifstream kept(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), "precious");
}

TEST(NewMethod, RefusesNamesThatCannotServe) {
  const ScratchFolder scratch;
  const RunSetup here{.folder = scratch.path()};
  for (const char* name : {"MyIdea", "9lives", "my-idea", "a b", "_x", ""}) {
    expect_refused(run_kvarena({"new-method", name, "--family", "dropping"}, here), "all in lower case");
  }
  expect_refused(run_kvarena({"new-method", "snapkv", "--family", "dropping"}, here), "taken by SnapKV");
  expect_refused(run_kvarena({"new-method", "mine", "--family", "droping"}, here), "did you mean \"dropping\"?");
  expect_refused(run_kvarena({"new-method", "mine"}, here), "--family: found nothing");
  expect_refused(run_kvarena({"new-method", "mine", "--family", "dropping"}, here), "no methods/CMakeLists.txt");
  EXPECT_TRUE(scratch.content().empty());
}

}  // namespace
}  // namespace kvarena::testing
