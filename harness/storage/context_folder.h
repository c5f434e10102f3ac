#pragma once
// Stored objects as files that outlive the program, each with a checksum.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/core/file_lock.h"
#include "harness/core/files.h"

namespace kvarena::storage {

/// Counts of damage found, and forgotten, since the folder was opened.
struct FolderDamage {
  int64_t unknown_files = 0;  // objects not in the index: the program ended between the two writes
  int64_t missing_files = 0;  // in the index and not there, when opened or when read
  int64_t wrong_files = 0;    // length or checksum differs from the index
  int64_t lost_indexes = 0;   // the index itself was damaged: nothing of the folder is trusted

  [[nodiscard]] int64_t total() const { return unknown_files + missing_files + wrong_files + lost_indexes; }
};

/// An object of a folder, open: it stays readable when the folder replaces or removes it. Any one thread may use it.
class StoredObject {
 public:
  StoredObject(const std::filesystem::path& file, int64_t bytes, std::string sha256);
  /// Lets go of what the system's page cache holds of the file: the next read is one of the disk.
  ~StoredObject();
  StoredObject(const StoredObject&) = delete;
  StoredObject& operator=(const StoredObject&) = delete;

  /// Whether the bytes are those that were put; reads all of them.
  [[nodiscard]] bool whole() const;
  [[nodiscard]] std::span<const std::byte> bytes() const { return mapped_->bytes(); }

 private:
  std::optional<MappedFile> mapped_;
  int64_t expected_;
  std::string sha256_;
};

/// A file for each object and an index of keys, lengths and SHA-256. An object is written whole, then added to the
/// index, which is replaced whole: a crash at any moment loses the object in work alone, or those that change together.
/// For one thread; a second process, or a second instance, is refused. Removes files of the names that it gives, and no
/// others.
class ContextFolder {
 public:
  /// Makes the folder when absent. Reads the index and forgets objects that disagree with it. Throws UserError when
  /// another run uses the folder, it cannot be written, or it holds files and is no folder of stored contexts.
  explicit ContextFolder(std::filesystem::path folder);

  /// Stores an object, replacing one of the same key. Throws UserError when the disk refuses (full, read-only); then
  /// there is no object of this key and the folder is otherwise as it was before.
  void put(const std::string& key, std::span<const std::byte> bytes);
  /// Opens the object of a key; null when there is none, or when its file is gone, which then is forgotten.
  [[nodiscard]] std::shared_ptr<const StoredObject> open(const std::string& key);
  /// Forgets an object that was opened and is not whole.
  void forget_damaged(const std::string& key);
  void remove(const std::string& key);
  /// Makes several changes, and replaces the index once, after them; false when the disk refuses that, and the changes
  /// last until the folder is closed. Throws what `changes` throws.
  [[nodiscard]] bool together(const std::function<void()>& changes);

  [[nodiscard]] bool contains(const std::string& key) const { return index_.contains(key); }
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] int64_t bytes() const;  // bytes of all objects
  [[nodiscard]] const FolderDamage& damage() const { return damage_; }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;

  /// Called between writing an object and adding it to the index. For tests, which simulate a crash there.
  std::function<void()> between_write_and_index;

 private:
  struct Entry {
    int64_t bytes = 0;
    std::string sha256;
  };
  void require_own() const;
  void read_index();
  void write_index();
  void forget_lost();

  std::filesystem::path folder_;
  FileLock lock_;
  std::map<std::string, Entry> index_;
  bool together_ = false;  // the index is written later
  bool index_is_old_ = false;
  FolderDamage damage_;
};

/// Bytes a second that an object is read with and checked in `folder`, which is made for that and removed.
[[nodiscard]] double disk_read_rate(const std::filesystem::path& folder);

}  // namespace kvarena::storage
