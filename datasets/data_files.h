#pragma once
// Search for official data files, and their listing by `kvarena workloads`.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "datasets/workload.h"

namespace kvarena::datasets {

/// Name of the environment variable with the data folder.
inline constexpr const char* kDataVariable = "KVARENA_DATA";

/// Folder with the project-made files, which the build makes (datasets/samples).
[[nodiscard]] std::filesystem::path samples_dir();

/// Where `kvarena workloads pull` puts files: `given`, else $KVARENA_DATA, else "data" in KVARENA_HOME.
[[nodiscard]] std::filesystem::path official_dir(const std::filesystem::path& given);

/// Folders in which files are looked for, in order: `given` or $KVARENA_DATA alone; else official_dir(), samples_dir().
[[nodiscard]] std::vector<std::filesystem::path> data_dirs(const std::filesystem::path& given);

/// A data file of a workload.
struct DataFile {
  std::filesystem::path path;
  std::filesystem::path root;  // the one of data_dirs() that it lies in, where files that go with it are looked for
  std::string origin;          // "project-made sample", or the file's name
};

/// The file of a workload below <data folder>/<info.folder>, of the first of data_dirs() that has one: at most three
/// folders deep; the shallowest, then the first by name, so that the answer does not depend on directory order. Nothing
/// when there is none.
[[nodiscard]] std::optional<DataFile> find_data_file(const WorkloadInfo& info, const std::filesystem::path& data_dir);

/// find_data_file(), but throws UserError that says what was looked for, where, and the command that fetches it.
[[nodiscard]] DataFile require_data_file(const WorkloadInfo& info, const std::filesystem::path& data_dir);

/// One line of `kvarena workloads`.
struct WorkloadListing {
  std::string name;
  std::string family;
  std::string title;
  std::string metrics;  // "qa_f1, rouge_l"
  std::string status;   // "generated", "a file of yours", "present", "project-made sample", or "missing"
  std::string place;    // the file, or the command that fetches it
  int64_t samples = 0;  // in the official set, or with default parameters
};

/// All workloads, sorted by name, as seen from `data_dir` (empty: data_dirs()).
[[nodiscard]] std::vector<WorkloadListing> list_workloads(const std::filesystem::path& data_dir);

}  // namespace kvarena::datasets
