#include "datasets/data_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "harness/core/data_origin.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"

namespace kvarena::datasets {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> find_below(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<std::tuple<int, fs::path>> found;  // depth, path
  std::error_code error;
  for (const std::string& name : names) {
    if (fs::is_regular_file(folder / name, error)) found.emplace_back(0, folder / name);
  }
  if (!found.empty()) return std::get<1>(*std::ranges::min_element(found));
  error.clear();
  auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry.depth() >= 3) entry.disable_recursion_pending();
    if (std::ranges::find(names, entry->path().filename().string()) != names.end() && entry->is_regular_file(error)) {
      found.emplace_back(entry.depth(), entry->path());
    }
  }
  if (found.empty()) return std::nullopt;
  return std::get<1>(*std::ranges::min_element(found));
}

}  // namespace

fs::path samples_dir() { return own_file("samples"); }

fs::path official_dir(const fs::path& given) { return data_dirs(given).front(); }

std::vector<fs::path> data_dirs(const fs::path& given) {
  if (!given.empty()) return {given};
  const char* variable = std::getenv(kDataVariable);
  if (variable && *variable) return {variable};
  return {kvarena_home() / "data", samples_dir()};
}

std::optional<DataFile> find_data_file(const WorkloadInfo& info, const fs::path& given) {
  for (const fs::path& root : data_dirs(given)) {
    const auto path = find_below(root / info.folder, info.files);
    if (!path) continue;
    std::error_code error;
    const bool made = fs::equivalent(root, samples_dir(), error);  // however it is spelled
    return DataFile{.path = *path, .root = root, .origin = made ? kProjectMade : path->filename().string()};
  }
  return std::nullopt;
}

DataFile require_data_file(const WorkloadInfo& info, const fs::path& given) {
  if (auto file = find_data_file(info, given)) return *file;
  const fs::path folder = official_dir(given) / info.folder;
  fail({.place = info.name,
        .found = fmt::format("no {} below {}", fmt::join(info.files, " or "), folder.string()),
        .expected = fmt::format("an official file from {}", info.source),
        .action = fmt::format("`kvarena workloads pull {}` fetches it, or by hand: {}", info.name, info.download)});
}

std::vector<WorkloadListing> list_workloads(const fs::path& given) {
  std::vector<WorkloadListing> lines;
  for (const WorkloadEntry& entry : workloads()) {
    const WorkloadInfo& info = entry.info;
    WorkloadListing line{.name = info.name,
                         .family = info.family,
                         .title = info.title,
                         .metrics = fmt::format("{}", fmt::join(info.metrics, ", ")),
                         .samples = info.samples};
    if (info.files.empty()) {
      line.status = info.source;
    } else if (const auto file = find_data_file(info, given)) {
      line.status = file->origin == kProjectMade ? file->origin : "present";
      line.place = file->path.string();
    } else {
      line.status = "missing";
      line.place = info.download;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace kvarena::datasets
