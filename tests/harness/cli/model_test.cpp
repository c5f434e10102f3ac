// The commands that read models, on a random model of three layers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGolden = fs::path(KVARENA_SOURCE_DIR) / "tests" / "golden" / "model";

const TinyModelFolder& tiny() {
  static const TinyModelFolder folder;
  return folder;
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

constexpr const char* kIds = "5,17,200,33,8,17,200,91";

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A prompt of so many ids inside the tiny vocabulary.
std::string many_ids(int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += std::to_string(2 + i * 7 % 290) + ",";
  return ids;
}

TEST(ModelTokenize, LinesInLinesOutAndBack) {
  const Finished ids = run_kvarena({"model", "tokenize", "--tokenizer", tiny().path() + "/tokenizer.json"},
                                   {.input = "\"Hello, world\"\n{\"text\": \"a  b\\n\", \"id\": 7}\n\n"});
  ASSERT_EQ(ids.code, 0) << ids.err;
  const Finished text = run_kvarena({"model", "tokenize", "--decode", "--model", tiny().path()}, {.input = ids.out});
  ASSERT_EQ(text.code, 0) << text.err;
  std::istringstream lines(text.out);
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("text"), "Hello, world");
  EXPECT_EQ(rows[1].at("text"), "a  b\n");
}

TEST(ModelTokenize, BadLinesAreNamed) {
  const std::vector<std::string> command{"model", "tokenize", "--model", tiny().path()};
  const Finished broken = run_kvarena(command, {.input = "\"fine\"\n{\"text\": \n"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_TRUE(contains(broken.err, "/dev/stdin:2")) << broken.err;
  EXPECT_TRUE(contains(run_kvarena(command, {.input = "{\"txt\": 1}\n"}).err, "\"text\""));
  const Finished outside =
      run_kvarena({"model", "tokenize", "--decode", "--model", tiny().path(), "--text", "5,90000"});
  expect_refused(outside, "ids[1]: found 90000, expected an id from 0 to 300");
}

TEST(ModelLogits, TopTokensAgreeWithTheMatrixWritten) {
  const ScratchFolder scratch;
  const fs::path npy = scratch / "logits.npy";
  const Finished finished = run_kvarena({"model", "logits", "--model", tiny().path(), "--ids", kIds, "--dtype", "f32",
                                         "--top", "3", "--all", "--output", npy.string()});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json result = json::parse(finished.out);
  ASSERT_EQ(result.at("top").size(), 3U);
  EXPECT_EQ(result.at("tokens").size(), 8U);

  const std::string bytes = bytes_of(npy);
  ASSERT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
  EXPECT_TRUE(contains(bytes.substr(10, header), "'shape': (8, 301)"));
  EXPECT_EQ((10 + header) % 64, 0U);
  ASSERT_EQ(bytes.size(), 10 + header + 8 * 301 * sizeof(float));
  std::vector<float> last(301);
  std::memcpy(last.data(), bytes.data() + bytes.size() - last.size() * sizeof(float), last.size() * sizeof(float));
  const auto largest = std::max_element(last.begin(), last.end());
  EXPECT_EQ(result.at("top")[0].at("id"), largest - last.begin());
  EXPECT_EQ(result.at("top")[0].at("logit").get<float>(), *largest);
}

TEST(ModelLogits, WeightsAsStoredHaveTheLogitsOfF32) {
  const auto top = [](const std::string& dtype, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"model", "logits", "--model", tiny().path(), "--ids", kIds, "--dtype", dtype};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvarena(words);
  };
  const Finished stored = top("as-stored");
  ASSERT_EQ(stored.code, 0) << stored.err;
  EXPECT_EQ(json::parse(stored.out).at("top"), json::parse(top("f32").out).at("top"));
  expect_refused(top("as-stored", {"--device", "cuda"}), "--dtype: found as-stored and --device cuda");
}

TEST(ModelLogits, AllRowsEndWithTheLastRow) {
  const ScratchFolder scratch;
  std::vector<json> matrices;
  for (const bool all : {false, true}) {
    const fs::path file = scratch / (all ? "all.json" : "last.json");
    std::vector<std::string> words{"model", "logits", "--model",  tiny().path(),
                                   "--ids", kIds,     "--output", file.string()};
    if (all) words.emplace_back("--all");
    const Finished finished = run_kvarena(words);
    ASSERT_EQ(finished.code, 0) << finished.err;
    matrices.push_back(json::parse(bytes_of(file)));
  }
  ASSERT_EQ(matrices[0].size(), 1U);
  ASSERT_EQ(matrices[1].size(), 8U);
  EXPECT_EQ(matrices[0].back(), matrices[1].back());
}

TEST(ModelGenerate, AVerifierAnswersAsFullKvDoes) {
  const std::vector<std::string> words{"model",      "generate",         "--model", tiny().path(), "--ids",
                                       many_ids(60), "--max-new-tokens", "24",      "--quiet"};
  const Finished full = run_kvarena(words);
  ASSERT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(full.err, "");
  auto verified = words;
  verified.insert(verified.end(), {"--method", "vericache:draft_length=5,drafter=(snapkv:keep=0.25,window=4)"});
  EXPECT_EQ(run_kvarena(verified).out, full.out);
}

TEST(ModelGenerate, SamplingDependsOnTheSeedAlone) {
  const auto answer = [](const std::string& seed) {
    return run_kvarena({"model", "generate", "--model", tiny().path(), "--ids", kIds, "--max-new-tokens", "30",
                        "--temperature", "3", "--seed", seed, "--quiet"})
        .out;
  };
  EXPECT_EQ(answer("1"), answer("1"));
  EXPECT_NE(answer("1"), answer("2"));
}

TEST(ModelGenerate, WrongSettingsAreRefusedBeforeTheModelIsRead) {
  const std::vector<std::string> words{"model", "generate", "--model", "there/is/none", "--ids", kIds};
  const auto with = [&](const std::vector<std::string>& more) {
    auto all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run_kvarena(all);
  };
  expect_refused(with({"--method", "snapk:keep=0.5"}), "did you mean \"snapkv\"?");
  expect_refused(with({"--method", "snapkv:keep=1.5"}), "--method.keep: found 1.5");
  expect_refused(with({"--method", "{\"name\": \"snapkv\", }"}), "--method: byte");
  expect_refused(with({"--top-p", "0"}), "--top-p: found 0, expected above 0 and at most 1");
  expect_refused(with({}), "there/is/none: found nothing there");
}

TEST(Models, ADeviceThatIsNotThereIsNamed) {
  const std::vector<std::string> words{"model", "generate", "--model",          tiny().path(),
                                       "--ids", kIds,       "--max-new-tokens", "3"};
  const auto with = [&](const std::vector<std::string>& more) {
    auto all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run_kvarena(all);
  };
  expect_refused(with({"--device", "gpu"}), "gpu");
  const Finished finished = with({"--device", "cuda"});
  if (finished.code != 0) {
    expect_refused(finished, "--device cuda: found ");
  }
  EXPECT_EQ(with({"--device", "cpu"}).code, 0);
  expect_refused(with({"--devices", "1"}), "--devices: found --device cpu beside it");
  expect_refused(with({"--device", "cuda", "--devices", "one"}), "--devices: found \"one\"");
}

TEST(Models, APromptLongerThanTheWindowIsRefused) {
  for (const std::string command : {"logits", "generate"}) {
    expect_refused(run_kvarena({"model", command, "--model", tiny().path(), "--ids", many_ids(257)}), "256");
  }
}

TEST(Models, APromptIsAskedForOnceAndMustBeIds) {
  const std::vector<std::string> words{"model", "logits", "--model", tiny().path()};
  expect_refused(run_kvarena(words), "prompt: found none, expected one of --prompt TEXT");
  auto both = words;
  both.insert(both.end(), {"--ids", "1", "--prompt", "a"});
  expect_refused(run_kvarena(both), "prompt: found several");
  for (const char* wrong : {"1,301", "1,-2", "1,x", "1.5"}) {
    auto ids = words;
    ids.insert(ids.end(), {"--ids", wrong});
    expect_refused(run_kvarena(ids), "expected token ids from 0 to 300");
  }
  auto absent = words;
  absent.insert(absent.end(), {"--prompt-file", "no/such/file.txt"});
  expect_refused(run_kvarena(absent), "no/such/file.txt");
}

TEST(Models, ATruncatedModelIsNamed) {
  const ScratchFolder scratch;
  const TinyModelFolder damaged;
  fs::resize_file(damaged.weights(), fs::file_size(damaged.weights()) / 2);
  const fs::path output = scratch / "logits.json";
  expect_refused(
      run_kvarena({"model", "logits", "--model", damaged.path(), "--ids", kIds, "--output", output.string()}),
      "model.safetensors");
  EXPECT_TRUE(scratch.content().empty());

  const fs::path gguf = scratch / "tiny.gguf";
  std::ofstream(gguf, std::ios::binary) << bytes_of(kGolden / "tiny_llama.gguf").substr(0, 20000);
  expect_refused(run_kvarena({"model", "logits", "--model", gguf.string(), "--ids", kIds}), "tiny.gguf");
}

TEST(Models, AnAbsentModelSaysHowToGetOne) {
  const ScratchFolder home;
  fs::create_directories(home / "models/smollm2-135m");
  const RunSetup setup{.environment = {{"KVARENA_HOME", home.path().string()}}};
  const Finished absent = run_kvarena({"model", "logits", "--model", "smollm2-35m", "--ids", "1"}, setup);
  expect_refused(absent, "scripts/setup");
  EXPECT_TRUE(contains(absent.err, "did you mean \"smollm2-135m\"?")) << absent.err;
}

TEST(ModelCheck, SaysWhatAModelIsAndWhichMethodsRunOnIt) {
  const Finished finished = run_kvarena({"model", "check", tiny().path(), "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json found = json::parse(finished.out);
  EXPECT_EQ(found.at("model").at("family"), "llama");
  EXPECT_TRUE(contains(found.at("model").at("template"), "<|im_start|>user"));
  EXPECT_GT(found.at("methods").get<int>(), 60);
  const json& refused = found.at("refused");
  EXPECT_TRUE(contains(refused.at("duo_attention"), "weights")) << refused.dump(2);
  for (const char* runs : {"full", "snapkv", "kivi", "quest", "h2o"})
    EXPECT_FALSE(refused.contains(runs)) << refused[runs];
}

TEST(ModelCheck, NamesWhatIsWrongWithAModel) {
  const ScratchFolder folder;
  write_text(folder / "config.json", R"({"model_type": "mamba"})");
  const Finished finished = run_kvarena({"model", "check", folder.path().string()});
  expect_refused(finished, "model_type");
  EXPECT_TRUE(contains(finished.err, "mamba"));
}

TEST(ModelList, ShowsModelsOfAllPlacesWithWhatTheyAre) {
  const ScratchFolder home;
  fs::create_directories(home / "models");
  fs::create_directory_symlink(tiny().path(), home / "models" / "tiny");
  fs::create_directories(home / "models" / "empty");
  const RunSetup setup{.environment = {{"KVARENA_HOME", home.path().string()},
                                       {"HF_HUB_CACHE", (home / "hub").string()},
                                       {"LLAMA_CACHE", (home / "llama").string()},
                                       {"OLLAMA_MODELS", (home / "ollama").string()}}};
  const Finished finished = run_kvarena({"model", "list", "--json"}, setup);
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json list = json::parse(finished.out);
  ASSERT_EQ(list.size(), 2U) << finished.out;
  EXPECT_EQ(list[0].at("name"), "empty");
  EXPECT_NE(list[0].at("problem"), "");
  EXPECT_EQ(list[1].at("name"), "tiny");
  EXPECT_EQ(list[1].at("family"), "llama");
  EXPECT_GE(list[1].at("bytes"), fs::file_size(tiny().weights()));
}

/// A program of the hub's that does what `body` says.
fs::path program_named_hf(const ScratchFolder& folder, const std::string& body) {
  fs::create_directories(folder / "bin");
  write_text(folder / "bin" / "hf", "#!/bin/sh\n" + body);
  fs::permissions(folder / "bin" / "hf", fs::perms::owner_all);
  return folder / "bin";
}

TEST(ModelPull, FetchesByTheHubsOwnProgram) {
  const ScratchFolder folder;
  const fs::path bin = program_named_hf(folder, R"(test "$*" = "download org/tiny --revision v1" || exit 3
cd "$HF_HUB_CACHE" && mkdir -p models--org--tiny/snapshots/abc models--org--tiny/refs
echo abc > models--org--tiny/refs/v1
)");
  fs::create_directories(folder / "hub");
  const RunSetup setup{
      .environment = {{"PATH", bin.string() + ":" + std::getenv("PATH")}, {"HF_HUB_CACHE", (folder / "hub").string()}}};
  const Finished finished = run_kvarena({"model", "pull", "org/tiny@v1"}, setup);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "models--org--tiny/snapshots/abc")) << finished.out;
  const Finished refused = run_kvarena({"model", "pull", "org/other"}, setup);
  expect_refused(refused, "exit code 3");
}

TEST(ModelPull, SaysTheCommandWhereTheProgramIsAbsent) {
  const ScratchFolder folder;
  const RunSetup setup{.environment = {{"PATH", folder.path().string()}}};
  expect_refused(run_kvarena({"model", "pull", "org/tiny"}, setup), "hf download org/tiny");
  expect_refused(run_kvarena({"model", "pull", "tiny"}, setup), "a name on Hugging Face's hub");
}

TEST(Doctor, SaysWhatIsMissingAndStillChecksTheRest) {
  const ScratchFolder home;
  const RunSetup setup{.environment = {{"KVARENA_HOME", (home / "absent").string()}}};
  const Finished finished = run_kvarena({"doctor", "--json", "--database", "/proc/none.db"}, setup);
  EXPECT_EQ(finished.code, 1);
  std::map<std::string, bool> good;
  for (const json& check : json::parse(finished.out)) good[check.at("check")] = check.at("good");
  EXPECT_TRUE(good.at("cpu path"));
  EXPECT_TRUE(good.at("program"));
  EXPECT_TRUE(good.at("data"));
  EXPECT_FALSE(good.at("KVARENA_HOME"));
  EXPECT_FALSE(good.at("model"));
  EXPECT_FALSE(good.at("database"));
}

TEST(Doctor, FindsNothingWrongWithAWholeSetUp) {
  const ScratchFolder home;
  const RunSetup setup{.environment = {{"KVARENA_HOME", home.path().string()}}};
  const Finished finished = run_kvarena({"doctor", "--model", tiny().path()}, setup);
  EXPECT_EQ(finished.code, 0) << finished.out;
  EXPECT_FALSE(contains(finished.out, "BAD"));
}

}  // namespace
}  // namespace kvarena::testing
