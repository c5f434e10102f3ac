#include "harness/evaluate/file_hashes.h"

#include <fmt/format.h>

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
    if (value.is_string()) known[key] = value.get<std::string>();
  }
  return known;
}

}  // namespace

FileHashes::FileHashes(std::filesystem::path memory) : memory_(std::move(memory)), known_(remembered(memory_)) {}

std::string FileHashes::of(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string key = fmt::format("{} {} {}", std::filesystem::absolute(file).string(), mapped.bytes().size(),
                                      std::filesystem::last_write_time(file).time_since_epoch().count());
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
