#pragma once
// Comparison of the data files at hand with the official ones.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "datasets/workload.h"

namespace kvarena::datasets {

/// Result of comparing a workload's file with the official one.
enum class FileState {
  official,   // SHA-256 is the official file's
  as_many,    // as many samples as the official file; its SHA-256 is not known here
  differs,    // SHA-256 or number of samples is another
  made,       // a project-made sample stands in
  missing,    // no file
  generated,  // needs no file
};

[[nodiscard]] std::string_view name(FileState state);

struct FileCheck {
  FileState state = FileState::missing;
  std::filesystem::path path;  // empty where there is none
  std::string sha256;
  int64_t samples = 0;  // read from it, all of them
  std::string detail;   // what differs, in words
};

/// SHA-256 of an official file, by folder and name ("gsm8k/test.jsonl"), as its authors' repository has it at the
/// commit that the download names. Nothing for files of sources that are not pinned.
[[nodiscard]] std::optional<std::string_view> official_sha256(std::string_view file);

/// Reads every sample of the workload's file below `data_dir` (empty: data_dirs()) and compares it with the official
/// one, and with theirs the files that go with it, as far as their sums are known. A file with a row that cannot be
/// read, or without another that it needs, differs.
[[nodiscard]] FileCheck check_data(const WorkloadEntry& entry, const std::filesystem::path& data_dir);

}  // namespace kvarena::datasets
