#include "harness/evaluate/file_hashes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

std::map<std::string, std::string> remembered(const std::filesystem::path& memory) {
  std::map<std::string, std::string> known;
  std::error_code ignored;
  if (!std::filesystem::exists(memory, ignored)) return known;
  const json stored = json::parse(read_file(memory), nullptr, false);
  if (!stored.is_object()) return known;
  for (const auto& [key, value] : stored.items()) {
    const std::string hash = value.is_string() ? value.get<std::string>() : "";
    if (hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string::npos) known[key] = hash;
  }
  return known;
}

}  // namespace

FileHashes::FileHashes(std::filesystem::path memory) : memory_(std::move(memory)), known_(remembered(memory_)) {}

std::string FileHashes::of_all(const std::vector<std::filesystem::path>& files) {
  std::string all;
  for (const auto& file : files) all += fmt::format("{} {}\n", file.filename().string(), of(file));
  return sha256(all);
}

std::string FileHashes::of(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(file)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return of_all(files);
  }
  const MappedFile mapped(file);
  struct stat info {};
  KVARENA_ASSERT(::stat(file.c_str(), &info) == 0, file.string());
  const std::string key = fmt::format("{} {} {} {}.{:09}", std::filesystem::absolute(file).string(), info.st_ino,
                                      info.st_size, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  const std::string hash = known_[key] = sha256(mapped.bytes());
  try {
    write_file(memory_, json(known_).dump(1));
  } catch (const UserError&) {
    return hash;  // a folder that cannot be written costs time, not the run
  }
  return hash;
}

}  // namespace kvarena::evaluate
