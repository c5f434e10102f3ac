#include <cstdlib>
#include <set>

#include "datasets/data_files.h"
#include "tests/datasets/support.h"

namespace kvarena::datasets {
namespace {

TEST(Registry, EveryFileInWorkloadsRegistersSomethingAndNothingElseDoes) {
  std::set<std::string> files;
  const auto folder = std::filesystem::path(KVARENA_SOURCE_DIR) / "datasets" / "workloads";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") files.insert(entry.path().filename().string());
  }
  std::set<std::string> registered;
  for (const WorkloadEntry& entry : workloads())
    registered.insert(std::filesystem::path(entry.file).filename().string());
  EXPECT_EQ(registered, files);
  EXPECT_GE(workloads().size(), 38u);
}

TEST(Registry, EntriesAreCompleteAndSorted) {
  std::string last;
  for (const WorkloadEntry& entry : workloads()) {
    const WorkloadInfo& info = entry.info;
    EXPECT_LT(last, info.name);
    last = info.name;
    EXPECT_FALSE(info.family.empty() || info.title.empty() || info.source.empty() || info.licence.empty()) << info.name;
    EXPECT_FALSE(info.metrics.empty()) << info.name;
    EXPECT_EQ(info.samples > 0, info.source != "a file of yours") << info.name;
    EXPECT_GT(info.generation.max_new_tokens, 0) << info.name;
    EXPECT_EQ(info.files.empty(), info.download.empty()) << info.name << ": a file needs a command that fetches it";
    EXPECT_EQ(info.files.empty(), info.folder.empty()) << info.name;
  }
}

TEST(Registry, EveryParameterIsDocumentedAndItsDefaultIsAccepted) {
  for (const WorkloadEntry& entry : workloads()) {
    nlohmann::json defaults = nlohmann::json::object();
    for (const ParameterInfo& info : workload_parameters(entry)) {
      EXPECT_FALSE(info.doc.empty()) << entry.info.name << " " << info.name;
      EXPECT_FALSE(std::set<std::string>({"name", "label", "limit", "question", "matrix"}).contains(info.name))
          << entry.info.name << " " << info.name << ": configs say something else by it";
      const auto value = nlohmann::json::parse(info.default_json);
      if (!value.is_null()) defaults[info.name] = value;
    }
    EXPECT_EQ(error_of([&] { (void)make_workload(entry.info.name, defaults.dump(), "test"); }), "") << entry.info.name;
  }
}

TEST(Registry, AWrongNameGetsTheNearestOne) {
  const std::string message = error_of([] { (void)find_workload("longbench/qaspr", "a.json: workloads[0].name"); });
  EXPECT_EQ(message,
            "a.json: workloads[0].name: found no workload \"longbench/qaspr\"; did you mean "
            "\"longbench/qasper\"? `kvarena workloads` lists all");
}

TEST(Registry, AllProblemsOfParametersComeAtOnce) {
  const std::string message =
      error_of([] { (void)make_workload("needle", R"({"name": "needle", "sample": 3, "seed": -1})", "a.json: w[0]"); });
  EXPECT_NE(message.find("samples"), std::string::npos) << message;
  EXPECT_NE(message.find("seed"), std::string::npos) << message;
  EXPECT_NE(error_of([] { (void)make_workload("needle", "[]", "a.json: w[0]"); }).find("JSON object"),
            std::string::npos);
}

TEST(Listing, TellsGeneratedProjectMadePresentAndMissingApart) {
  const auto status = [](const std::filesystem::path& folder, const std::string& name) {
    for (const WorkloadListing& line : list_workloads(folder)) {
      if (line.name == name) return line.status + "|" + (line.status == "missing" ? line.place.substr(0, 4) : "");
    }
    return std::string();
  };
  EXPECT_EQ(status({}, "needle"), "generated|");
  EXPECT_EQ(status(samples_dir(), "longbench/qasper"), "project-made sample|");
  EXPECT_EQ(status(std::filesystem::relative(samples_dir()), "longbench/qasper"), "project-made sample|");
  EXPECT_EQ(status(std::filesystem::path(KVARENA_SOURCE_DIR) / "cmake", "longbench/qasper"), "missing|curl");
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena_list_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "longbench" / "data");
  std::ofstream(folder / "longbench" / "data" / "qasper.jsonl") << "";
  EXPECT_EQ(status(folder, "longbench/qasper"), "present|");
  ::setenv(kDataVariable, folder.c_str(), 1);
  EXPECT_EQ(status({}, "longbench/qasper"), "present|");
  ::unsetenv(kDataVariable);
  EXPECT_EQ(status({}, "longbench/qasper"), "project-made sample|");
  std::filesystem::remove_all(folder);
}

TEST(Workloads, EveryOneRunsOfflineFromTheProjectsOwnFiles) {
  for (const WorkloadEntry& entry : workloads()) {
    if (entry.info.files.empty()) continue;
    const auto samples = all_samples(entry.info.name, "{}", {.data_dir = samples_dir()});
    EXPECT_GT(samples.size(), 0u) << entry.info.name;
    std::set<std::string> ids;
    for (const Sample& sample : samples) {
      ids.insert(sample.id);
      EXPECT_EQ(sample.prompt_sha256.size(), 64u);
      EXPECT_TRUE(nlohmann::json::parse(sample.extras).is_object());
      // Writing to a length or as instructed, programs, replay and perplexity have no answer; metrics read extras.
      const std::set<std::string> no_answers = {"longbench-write",
                                                "longgenbench/short",
                                                "longgenbench/long",
                                                "longbench-write-en",
                                                "longwrite-ruler",
                                                "agentic-traces",
                                                "mooncake-trace",
                                                "weka-trace",
                                                "ifeval",
                                                "livecodebench",
                                                "pg19"};
      const bool no_answer = no_answers.contains(entry.info.name);
      EXPECT_EQ(sample.references.empty(), no_answer) << entry.info.name << " " << sample.id;
    }
    EXPECT_EQ(ids.size(), samples.size()) << entry.info.name;
  }
}

}  // namespace
}  // namespace kvarena::datasets
