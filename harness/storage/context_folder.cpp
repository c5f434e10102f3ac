#include "harness/storage/context_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"

namespace kvarena::storage {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kIndex = "kvarena-contexts.json";
constexpr std::string_view kLock = "kvarena-contexts.lock";
constexpr std::string_view kObject = ".kv";
constexpr size_t kNameDigits = 32;  // digits of the key's SHA-256

/// Without what write_file() puts behind the name of a file that is not whole yet: ".4711.tmp".
std::string_view whole_name(std::string_view name) {
  if (!name.ends_with(".tmp")) return name;
  const std::string_view process = name.substr(0, name.size() - 4);
  const size_t dot = process.rfind('.');
  const bool number = dot != std::string_view::npos && dot + 1 < process.size() &&
                      process.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return number ? process.substr(0, dot) : name;
}

bool names_object(std::string_view name) {
  return name.size() == kNameDigits + kObject.size() && name.ends_with(kObject) &&
         name.find_first_not_of("0123456789abcdef") == kNameDigits;
}

/// Whether a store of contexts gives files such names.
bool is_own_name(std::string_view name) {
  const std::string_view whole = whole_name(name);
  return whole == kIndex || whole == kLock || names_object(whole);
}

/// {key: {"bytes": a count, "sha256": text}}: a checksum that is right does not say who wrote it.
bool lists_objects(const json& objects) {
  return objects.is_object() && std::ranges::all_of(objects, [](const json& object) {
           return object.is_object() && object.contains("bytes") && object["bytes"].is_number_unsigned() &&
                  object.contains("sha256") && object["sha256"].is_string();
         });
}

/// Makes the next read of a file one of the disk: what the system's page cache holds of it goes.
void leave_page_cache(const fs::path& file) {
  const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle < 0) return;
  (void)::fdatasync(handle);  // pages that are not written yet would stay
  (void)::posix_fadvise(handle, 0, 0, POSIX_FADV_DONTNEED);
  ::close(handle);
}

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

StoredObject::StoredObject(const fs::path& file, int64_t bytes, std::string sha256)
    : mapped_(file), expected_(bytes), sha256_(std::move(sha256)) {}

StoredObject::~StoredObject() {
  const fs::path file = mapped_->path();
  mapped_.reset();
  leave_page_cache(file);
}

bool StoredObject::whole() const { return std::ssize(bytes()) == expected_ && sha256(bytes()) == sha256_; }

ContextFolder::ContextFolder(fs::path folder)
    : folder_(made(std::move(folder))),
      lock_(folder_ / kLock, {.place = folder_.string(),
                              .held = "a folder of stored contexts that another run uses",
                              .action = "wait for it to end, stop it, or choose another folder"}) {
  require_own();
  read_index();
  forget_lost();
}

/// A folder without an index is taken when nothing else lies there: what a crash left of a store counts as nothing.
void ContextFolder::require_own() const {
  if (fs::exists(folder_ / kIndex)) return;
  for (const auto& file : fs::directory_iterator(folder_)) {
    const std::string name = file.path().filename().string();
    if (is_own_name(name)) continue;
    fail({.place = folder_.string(),
          .found = fmt::format("\"{}\", which no store of contexts put there", name),
          .expected = fmt::format("an empty folder, or one of stored contexts (with {})", kIndex),
          .action = "choose another folder"});
  }
}

fs::path ContextFolder::file_of(const std::string& key) const {
  return folder_ / (sha256(key).substr(0, kNameDigits) + std::string(kObject));
}

/// The index carries its own checksum: {"sha256": of the dump of "objects", "objects": {key: {"bytes", "sha256"}}}.
void ContextFolder::read_index() {
  if (!fs::exists(folder_ / kIndex)) return;
  const std::string text = read_file(folder_ / kIndex);
  const json whole = json::parse(nests_deeply(text) ? "" : text, nullptr, /*allow_exceptions=*/false);
  const bool sound = whole.is_object() && whole.contains("objects") && whole.contains("sha256") &&
                     whole["sha256"] == sha256(whole["objects"].dump()) && lists_objects(whole["objects"]);
  if (!sound) {
    ++damage_.lost_indexes;
    return;
  }
  for (const auto& [key, object] : whole["objects"].items()) {
    index_[key] = {.bytes = object.at("bytes").get<int64_t>(), .sha256 = object.at("sha256").get<std::string>()};
  }
}

void ContextFolder::write_index() {
  index_is_old_ = together_;
  if (together_) return;
  json objects = json::object();
  for (const auto& [key, entry] : index_) objects[key] = {{"bytes", entry.bytes}, {"sha256", entry.sha256}};
  write_file(folder_ / kIndex, json{{"sha256", sha256(objects.dump())}, {"objects", objects}}.dump());
}

/// Forgets objects that the index lists but that are missing or have another length; removes objects that it does not
/// list. Leaves all other files in the folder alone.
void ContextFolder::forget_lost() {
  std::set<std::string> known = {std::string(kIndex), std::string(kLock)};
  bool changed = damage_.lost_indexes > 0 || !fs::exists(folder_ / kIndex);
  for (auto it = index_.begin(); it != index_.end();) {
    const fs::path file = file_of(it->first);
    std::error_code error;
    const auto size = fs::file_size(file, error);
    const bool there = !error, whole = there && static_cast<int64_t>(size) == it->second.bytes;
    if (whole) {
      known.insert(file.filename().string());
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
    if (known.contains(name) || !is_own_name(name) || !file.is_regular_file()) continue;
    fs::remove(file.path());
    ++damage_.unknown_files;
  }
  if (changed) write_index();
}

void ContextFolder::put(const std::string& key, std::span<const std::byte> bytes) {
  // The old object goes first: a key never names bytes that its checksum is not of.
  remove(key);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    write_file(file_of(key), text);
    leave_page_cache(file_of(key));
    if (between_write_and_index) between_write_and_index();
    index_[key] = {.bytes = static_cast<int64_t>(bytes.size()), .sha256 = sha256(bytes)};
    write_index();
  } catch (...) {
    index_.erase(key);
    std::error_code ignored;
    fs::remove(file_of(key), ignored);
    throw;
  }
}

std::shared_ptr<const StoredObject> ContextFolder::open(const std::string& key) {
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  if (fs::exists(file_of(key))) {
    return std::make_shared<const StoredObject>(file_of(key), it->second.bytes, it->second.sha256);
  }
  ++damage_.missing_files;
  remove(key);
  return nullptr;
}

void ContextFolder::forget_damaged(const std::string& key) {
  if (!index_.contains(key)) return;
  ++damage_.wrong_files;
  remove(key);
}

void ContextFolder::remove(const std::string& key) {
  if (index_.erase(key) == 0) return;
  write_index();
  std::error_code ignored;  // a file that stays is unknown at the next opening
  fs::remove(file_of(key), ignored);
}

bool ContextFolder::together(const std::function<void()>& changes) {
  KVARENA_ASSERT(!together_, "changes within changes");
  together_ = true;
  try {
    changes();
  } catch (...) {
    together_ = false;
    throw;
  }
  together_ = false;
  try {
    if (std::exchange(index_is_old_, false)) write_index();
  } catch (const UserError&) {
    return false;
  }
  return true;
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

double disk_read_rate(const fs::path& folder) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  double seconds = 0;
  {
    ContextFolder probe(folder);
    probe.put("probe", std::vector<std::byte>(static_cast<size_t>(kBytes), std::byte{7}));
    const auto start = std::chrono::steady_clock::now();
    const bool whole = probe.open("probe")->whole();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    KVARENA_ASSERT(whole, "an object that was just put");
  }
  fs::remove_all(folder);
  return static_cast<double>(kBytes) / seconds;
}

}  // namespace kvarena::storage
