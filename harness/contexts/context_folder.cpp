#include "harness/contexts/context_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::contexts {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kIndex = "index.json";
constexpr const char* kLock = "lock";
constexpr size_t kNameDigits = 32;  // of the key's SHA-256

fs::path made(fs::path folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    fail({.place = folder.string(),
          .found = error.message(),
          .expected = "a folder for stored contexts",
          .action = "make it writable or choose another"});
  }
  return folder;
}

}  // namespace

ContextFolder::ContextFolder(fs::path folder)
    : folder_(made(std::move(folder))),
      lock_(folder_ / kLock, {.place = folder_.string(),
                              .held = "a folder of stored contexts that another run uses",
                              .action = "wait for it to end, stop it, or choose another folder"}) {
  read_index();
  forget_strangers();
}

fs::path ContextFolder::file_of(const std::string& key) const {
  return folder_ / (sha256(key).substr(0, kNameDigits) + ".kv");
}

/// The index carries its own checksum: {"sha256": of the dump of "objects", "objects": {key: {"bytes", "sha256"}}}.
void ContextFolder::read_index() {
  if (!fs::exists(folder_ / kIndex)) return;
  const json whole = json::parse(read_file(folder_ / kIndex), nullptr, /*allow_exceptions=*/false);
  const bool sound = whole.is_object() && whole.contains("objects") && whole.contains("sha256") &&
                     whole["sha256"] == sha256(whole["objects"].dump());
  if (!sound) {
    ++damage_.lost_indexes;
    return;
  }
  for (const auto& [key, object] : whole["objects"].items()) {
    index_[key] = {.bytes = object.at("bytes").get<int64_t>(), .sha256 = object.at("sha256").get<std::string>()};
  }
}

void ContextFolder::write_index(const std::map<std::string, Entry>& index) const {
  json objects = json::object();
  for (const auto& [key, entry] : index) objects[key] = {{"bytes", entry.bytes}, {"sha256", entry.sha256}};
  write_file(folder_ / kIndex, json{{"sha256", sha256(objects.dump())}, {"objects", objects}}.dump());
}

/// What the index does not know is removed; what it knows and is not there, or has another length, is forgotten.
void ContextFolder::forget_strangers() {
  std::set<fs::path> known;
  bool changed = damage_.lost_indexes > 0;
  for (auto it = index_.begin(); it != index_.end();) {
    const fs::path file = file_of(it->first);
    std::error_code error;
    const auto size = fs::file_size(file, error);
    const bool there = !error, whole = there && static_cast<int64_t>(size) == it->second.bytes;
    if (whole) {
      known.insert(file);
      ++it;
      continue;
    }
    ++(there ? damage_.wrong_files : damage_.missing_files);
    fs::remove(file, error);
    it = index_.erase(it);
    changed = true;
  }
  for (const auto& file : fs::directory_iterator(folder_)) {
    const std::string name = file.path().filename().string();
    if (name == kIndex || name == kLock || known.contains(file.path())) continue;
    fs::remove_all(file.path());
    ++damage_.unknown_files;
  }
  if (changed) write_index(index_);
}

void ContextFolder::put(const std::string& key, std::span<const std::byte> bytes) {
  // The old object goes first: a key never names bytes that its checksum is not of.
  remove(key);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::map<std::string, Entry> next = index_;
  next[key] = {.bytes = static_cast<int64_t>(bytes.size()), .sha256 = sha256(bytes)};
  try {
    write_file(file_of(key), text);
    if (between_write_and_index) between_write_and_index();
    write_index(next);
  } catch (...) {
    std::error_code ignored;
    fs::remove(file_of(key), ignored);
    throw;
  }
  index_ = std::move(next);
}

std::optional<std::vector<std::byte>> ContextFolder::get(const std::string& key) {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  const fs::path file = file_of(key);
  if (!fs::exists(file)) {
    ++damage_.missing_files;
    remove(key);
    return std::nullopt;
  }
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  if (static_cast<int64_t>(bytes.size()) == it->second.bytes && sha256(bytes) == it->second.sha256) {
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  ++damage_.wrong_files;
  remove(key);
  return std::nullopt;
}

void ContextFolder::remove(const std::string& key) {
  if (index_.erase(key) == 0) return;
  write_index(index_);
  std::error_code ignored;  // a file that stays is a stranger at the next opening
  fs::remove(file_of(key), ignored);
}

std::vector<std::string> ContextFolder::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : index_) keys.push_back(key);
  return keys;
}

int64_t ContextFolder::bytes() const {
  int64_t total = 0;
  for (const auto& [key, entry] : index_) total += entry.bytes;
  return total;
}

}  // namespace kvarena::contexts
