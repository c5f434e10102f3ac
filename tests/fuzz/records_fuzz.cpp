#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "datasets/arrivals.h"
#include "datasets/questions.h"
#include "datasets/records.h"
#include "datasets/workload.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace kvarena;

/// Files beside those that a workload says it is made of.
constexpr std::array<const char*, 9> kBeside = {"longgenbench-gsm8k/LongGenBench_prompt.txt",
                                                "bfcl/possible_answer/BFCL_v4_simple_python.json",
                                                "bfcl/possible_answer/BFCL_v4_multiple.json",
                                                "bfcl/possible_answer/BFCL_v4_parallel.json",
                                                "bfcl/possible_answer/BFCL_v4_parallel_multiple.json",
                                                "helmet/trec_train.jsonl",
                                                "helmet/nq-train-multikilt_1000_k3_dep6.jsonl",
                                                "helmet/test_reranking_data_k10_dep3.jsonl",
                                                "helmet/asqa_revised.json"};

/// A data folder in which every file that a workload may ask for is the same one.
class DataFolder {
 public:
  DataFolder() {
    for (const datasets::WorkloadEntry& entry : datasets::workloads()) {
      if (entry.info.files.empty()) continue;
      readers_.push_back(&entry);
      link(fs::path(entry.info.folder) / entry.info.files.front());
    }
    for (const char* file : kBeside) link(file);
  }
  void write(fuzz::Bytes data) const { file_.write(data); }
  [[nodiscard]] fs::path file() const { return file_.path(); }
  [[nodiscard]] fs::path path() const { return folder_.path(); }
  /// The workload of this name, or any that the name leads to.
  [[nodiscard]] const datasets::WorkloadEntry& reader(std::string_view name) const {
    const auto named =
        std::ranges::find(readers_, name, [](const datasets::WorkloadEntry* entry) { return entry->info.name; });
    return named != readers_.end() ? **named : *readers_[std::hash<std::string_view>()(name) % readers_.size()];
  }

 private:
  void link(const fs::path& name) const {
    fs::create_directories((folder_.path() / name).parent_path());
    if (!fs::exists(fs::symlink_status(folder_.path() / name))) fs::create_symlink(file(), folder_.path() / name);
  }

  kvarena::testing::TemporaryFolder folder_;
  fuzz::BytesFile file_;
  std::vector<const datasets::WorkloadEntry*> readers_;
};

void read_rows(const fs::path& file) {
  constexpr size_t kLongestRow = 1 << 15;
  datasets::RecordReader reader(file, kLongestRow);
  while (const auto record = reader.next()) {
    const datasets::Row row = datasets::parse_object(*record);
    fuzz::try_to([&] { (void)datasets::string_field(row, "input", record->place); });
    fuzz::try_to([&] { (void)datasets::strings_field(row, "answers", record->place); });
    fuzz::try_to([&] { (void)datasets::integer_field(row, "length", record->place); });
  }
}

void read_trace(const fs::path& file) {
  datasets::ArrivalReader reader(file);
  while (reader.next()) {
  }
}

}  // namespace

/// The first line names a workload, or a reader that stands alone; the rest is its file.
KVARENA_FUZZ(records, data) {
  static const DataFolder folder;
  const std::string_view text = fuzz::text_of(data);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return;
  const std::string_view name = text.substr(0, line);
  folder.write(data.subspan(line + 1));
  if (name == "rows") return read_rows(folder.file());
  if (name == "questions") return (void)datasets::read_questions(folder.file());
  if (name == "arrivals") return read_trace(folder.file());
  const datasets::WorkloadEntry& entry = folder.reader(name);
  const auto workload = datasets::make_workload(entry.info.name, "{}", "fuzz");
  datasets::SampleReader reader =
      workload->open({.data_dir = folder.path(), .tokens = nullptr, .max_prompt_tokens = 0});
  while (reader.next()) {
  }
}
