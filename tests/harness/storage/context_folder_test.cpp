// The folder returns the bytes that were put, or nothing.

#include "harness/storage/context_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::storage {
namespace {

using kvarena::testing::TemporaryFolder;

std::vector<std::byte> bytes_of(uint64_t seed, size_t count) {
  const RandomStream random(seed, "bytes");
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(random.below(256, i));
  return bytes;
}

/// The object of a key as its users read it; a damaged one is forgotten.
std::optional<std::vector<std::byte>> get(ContextFolder& folder, const std::string& key) {
  const std::shared_ptr<const StoredObject> object = folder.open(key);
  if (object == nullptr) return std::nullopt;
  if (object->whole()) return std::vector(object->bytes().begin(), object->bytes().end());
  folder.forget_damaged(key);
  return std::nullopt;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ContextFolder, GivesBackWhatWasPutAlsoToTheNextProgram) {
  const TemporaryFolder scratch;
  {
    ContextFolder folder(scratch.path());
    folder.put("a", bytes_of(1, 5000));
    folder.put("b", bytes_of(2, 0));
    folder.put("a", bytes_of(3, 700));  // replaces
    EXPECT_EQ(folder.bytes(), 700);
  }
  ContextFolder folder(scratch.path());
  EXPECT_EQ(folder.keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(get(folder, "a"), bytes_of(3, 700));
  EXPECT_EQ(get(folder, "b"), bytes_of(2, 0));
  EXPECT_FALSE(get(folder, "c").has_value());
  folder.remove("a");
  EXPECT_FALSE(get(folder, "a").has_value());
  EXPECT_FALSE(std::filesystem::exists(folder.file_of("a")));
  EXPECT_EQ(folder.damage().total(), 0);
}

/// Pages of a file that the page cache holds.
int64_t cached_pages(const std::filesystem::path& path, size_t bytes) {
  const int handle = ::open(path.c_str(), O_RDONLY);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, handle, 0);
  ::close(handle);
  std::vector<unsigned char> there((bytes + 4095) / 4096);
  EXPECT_EQ(::mincore(memory, bytes, there.data()), 0);
  ::munmap(memory, bytes);
  return std::ranges::count_if(there, [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(ContextFolder, ReadsComeFromTheDiskAndNotFromThePageCache) {
  const TemporaryFolder scratch;
  struct statfs system {};
  ASSERT_EQ(::statfs(scratch.path().c_str(), &system), 0);
  if (system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files in memory have nowhere else to be";
  constexpr size_t kBytes = 1 << 20;
  ContextFolder folder(scratch.path());
  folder.put("a", bytes_of(1, kBytes));
  EXPECT_EQ(cached_pages(folder.file_of("a"), kBytes), 0);
  EXPECT_EQ(get(folder, "a"), bytes_of(1, kBytes));
  EXPECT_EQ(cached_pages(folder.file_of("a"), kBytes), 0);
}

TEST(ContextFolder, OneBitIsEnoughToForgetAFile) {
  const TemporaryFolder scratch;
  ContextFolder folder(scratch.path());
  folder.put("a", bytes_of(1, 5000));
  {
    std::fstream file(folder.file_of("a"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(4321);
    const char flipped = static_cast<char>(file.get() ^ 4);
    file.seekp(4321);
    file.put(flipped);
  }
  EXPECT_FALSE(get(folder, "a").has_value());
  EXPECT_EQ(folder.damage().wrong_files, 1);
  EXPECT_FALSE(folder.contains("a"));
  folder.put("a", bytes_of(1, 5000));  // recomputed
  EXPECT_EQ(get(folder, "a"), bytes_of(1, 5000));
}

TEST(ContextFolder, CutAndDeletedFilesAreForgotten) {
  const TemporaryFolder scratch;
  {
    ContextFolder folder(scratch.path());
    for (const char* key : {"cut", "cut later", "gone", "gone later", "whole"}) folder.put(key, bytes_of(9, 3000));
    std::filesystem::resize_file(folder.file_of("cut"), 2999);
    std::filesystem::remove(folder.file_of("gone"));
  }
  ContextFolder folder(scratch.path());
  EXPECT_EQ(folder.damage().wrong_files, 1);
  EXPECT_EQ(folder.damage().missing_files, 1);
  EXPECT_EQ(folder.keys(), (std::vector<std::string>{"cut later", "gone later", "whole"}));
  std::filesystem::resize_file(folder.file_of("cut later"), 10);
  std::filesystem::remove(folder.file_of("gone later"));
  EXPECT_FALSE(get(folder, "cut later").has_value());
  EXPECT_FALSE(get(folder, "gone later").has_value());
  EXPECT_EQ(folder.damage().total(), 4);
  EXPECT_EQ(get(folder, "whole"), bytes_of(9, 3000));
}

TEST(ContextFolder, ADamagedIndexMakesNothingTrusted) {
  const TemporaryFolder scratch;
  {
    ContextFolder folder(scratch.path());
    folder.put("a", bytes_of(1, 100));
  }
  for (const char* text : {"", "{\"objects\": {}}", "not json"}) {
    std::ofstream(scratch.path() / "kvarena-contexts.json") << text;
    ContextFolder folder(scratch.path());
    EXPECT_TRUE(folder.keys().empty());
    EXPECT_EQ(folder.damage().lost_indexes, 1) << text;
    folder.put("a", bytes_of(1, 100));
  }
  // An index that was edited: the lengths agree, its own checksum does not.
  std::string text = text_of(scratch.path() / "kvarena-contexts.json");
  text.replace(text.find("\"a\""), 3, "\"b\"");
  std::ofstream(scratch.path() / "kvarena-contexts.json") << text;
  EXPECT_FALSE(ContextFolder(scratch.path()).contains("b"));
}

TEST(ContextFolder, ACrashBetweenFileAndIndexLeavesNoObject) {
  const TemporaryFolder scratch;
  for (const bool replaces : {false, true}) {
    if (replaces) ContextFolder(scratch.path()).put("a", bytes_of(1, 100));
    const pid_t child = ::fork();
    if (child == 0) {
      ContextFolder folder(scratch.path());
      folder.between_write_and_index = [] { ::_exit(7); };
      folder.put("a", bytes_of(2, 100));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 7);
    ContextFolder folder(scratch.path());
    EXPECT_FALSE(get(folder, "a").has_value()) << "a file that the index never heard of";
    EXPECT_EQ(folder.damage().unknown_files, 1);
  }
}

TEST(ContextFolder, ChangesMadeTogetherAreListedTogether) {
  const TemporaryFolder scratch;
  {
    ContextFolder folder(scratch.path());
    folder.put("a", bytes_of(1, 100));
    ASSERT_TRUE(folder.together([&] {
      folder.put("b", bytes_of(2, 100));
      folder.put("c", bytes_of(3, 100));
      folder.remove("a");
      EXPECT_EQ(get(folder, "c"), bytes_of(3, 100)) << "there at once";
    }));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ContextFolder folder(scratch.path());
    (void)folder.together([&] {
      folder.put("b", bytes_of(4, 100));
      folder.put("d", bytes_of(5, 100));
      ::_exit(7);
    });
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  ContextFolder folder(scratch.path());
  EXPECT_EQ(folder.keys(), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(folder.damage().unknown_files, 1) << "d";
  EXPECT_FALSE(get(folder, "b").has_value()) << "it was changing when the program ended";
  EXPECT_EQ(get(folder, "c"), bytes_of(3, 100));
}

TEST(ContextFolder, AFullDiskLeavesTheFolderAsItWas) {
  const TemporaryFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {  // a process that may not write files above 64 KiB stands for a disk without room
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 65536, .rlim_max = 65536};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ContextFolder folder(scratch.path());
    folder.put("small", bytes_of(1, 1000));
    int code = 1;
    try {
      folder.put("large", bytes_of(2, 100'000));
    } catch (const UserError&) {
      code = get(folder, "small") == bytes_of(1, 1000) && !folder.contains("large") ? 0 : 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ContextFolder folder(scratch.path());
  EXPECT_EQ(folder.keys(), std::vector<std::string>{"small"});
  EXPECT_EQ(folder.damage().total(), 0);
}

TEST(ContextFolder, TwoRunsCannotShareIt) {
  const TemporaryFolder scratch;
  const ContextFolder first(scratch.path());
  try {
    const ContextFolder second(scratch.path());
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(scratch.path().string()), std::string::npos) << text;
    EXPECT_NE(text.find("that another run uses (process "), std::string::npos) << text;
    EXPECT_NE(text.find("choose another folder"), std::string::npos) << text;
  }
}

TEST(ContextFolder, AFolderOfSomebodyElseIsRefusedAndLeftAsItIs) {
  const std::string object = std::string(32, 'a') + ".kv";
  for (const char* name : {"notes.txt", "index.json", "lock", "photo.kv", "kvarena-contexts.json.old", "x.12.tmp"}) {
    const TemporaryFolder scratch;
    std::ofstream(scratch.path() / name) << "mine";
    std::ofstream(scratch.path() / object) << "mine too";
    std::filesystem::create_directory(scratch.path() / "photos");
    try {
      const ContextFolder folder(scratch.path());
      FAIL() << name << ": expected a UserError";
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(scratch.path().string()), std::string::npos) << text;
      EXPECT_NE(text.find("choose another folder"), std::string::npos) << text;
    }
    EXPECT_EQ(text_of(scratch.path() / name), "mine");
    EXPECT_EQ(text_of(scratch.path() / object), "mine too");
    const auto files = std::filesystem::directory_iterator(scratch.path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 3) << name;
  }
}

TEST(ContextFolder, WhatSomebodyPutBesideObjectsStays) {
  const TemporaryFolder scratch;
  ContextFolder(scratch.path()).put("a", bytes_of(1, 100));
  std::ofstream(scratch.path() / "notes.txt") << "mine";
  std::filesystem::create_directory(scratch.path() / (std::string(32, 'b') + ".kv"));
  std::ofstream(scratch.path() / (std::string(32, 'c') + ".kv.4711.tmp")) << "a program ended while it wrote";
  ContextFolder folder(scratch.path());
  EXPECT_EQ(get(folder, "a"), bytes_of(1, 100));
  EXPECT_EQ(folder.damage().unknown_files, 1);
  EXPECT_EQ(text_of(scratch.path() / "notes.txt"), "mine");
  EXPECT_TRUE(std::filesystem::is_directory(scratch.path() / (std::string(32, 'b') + ".kv")));
}

TEST(ContextFolder, ACrashBeforeTheFirstIndexLeavesAFolderThatIsTaken) {
  const TemporaryFolder scratch;
  std::ofstream(scratch.path() / "kvarena-contexts.lock") << "process 4711";
  std::ofstream(scratch.path() / "kvarena-contexts.json.4711.tmp") << "{";
  ContextFolder folder(scratch.path());
  folder.put("a", bytes_of(1, 100));
  EXPECT_EQ(get(folder, "a"), bytes_of(1, 100));
}

TEST(ContextFolder, AnObjectThatIsOpenStaysWhatItWas) {
  const TemporaryFolder scratch;
  ContextFolder folder(scratch.path());
  folder.put("a", bytes_of(1, 5000));
  const auto first = folder.open("a");
  folder.put("a", bytes_of(2, 5000));
  const auto second = folder.open("a");
  folder.remove("a");
  EXPECT_EQ(folder.open("a"), nullptr);
  EXPECT_TRUE(first->whole());
  EXPECT_TRUE(std::ranges::equal(first->bytes(), bytes_of(1, 5000)));
  EXPECT_TRUE(second->whole());
  EXPECT_TRUE(std::ranges::equal(second->bytes(), bytes_of(2, 5000)));
}

TEST(ContextFolder, TheRateOfReadsIsMeasuredAndNothingIsLeft) {
  const TemporaryFolder scratch;
  const double rate = disk_read_rate(scratch.path() / "probe");
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1e11);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(ContextFolder, AFolderThatCannotBeMadeIsNamed) {
  EXPECT_THROW(ContextFolder("/proc/kvarena/contexts"), UserError);
}

}  // namespace
}  // namespace kvarena::storage
