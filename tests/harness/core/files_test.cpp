#include "harness/core/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "harness/core/error.h"
#include "tests/support/error_of.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "kvarena-core-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(Files, ReadsBackWhatWasWrittenByteForByte) {
  std::string content("zero \0 byte, newline \n, ü", 25);
  for (int i = 0; i < 256; ++i) content += static_cast<char>(i);
  write_file(folder_ / "f", content);
  EXPECT_EQ(read_file(folder_ / "f"), content);
  write_file(folder_ / "f", "shorter");
  EXPECT_EQ(read_file(folder_ / "f"), "shorter");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "a temporary file was left";
}

TEST_F(Files, EmptyFileIsAnEmptySpan) {
  write_file(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").bytes().size(), 0U);
  EXPECT_EQ(read_file(folder_ / "empty"), "");
}

TEST_F(Files, WhatCannotBeReadIsNamedWithTheReason) {
  const std::string absent = testing::error_of([&] { (void)read_file(folder_ / "absent"); });
  EXPECT_EQ(absent.rfind((folder_ / "absent").string(), 0), 0U) << absent;
  EXPECT_NE(absent.find("No such file or directory"), std::string::npos) << absent;
  EXPECT_NE(testing::error_of([&] { (void)read_file(folder_); }).find("not a regular file"), std::string::npos);
}

TEST_F(Files, AWriteThatFailsLeavesTheOldFileAndNothingBesides) {
  write_file(folder_ / "f", "old");
  // A limit on file size stands for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small { 1000, before.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = testing::error_of([&] { write_file(folder_ / "f", std::string(100'000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(message.find("a write that did not finish"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder_ / "f"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);

  EXPECT_NE(testing::error_of([&] { write_file(folder_ / "absent" / "f", "x"); }).find("No such file"),
            std::string::npos);
}

TEST_F(Files, ALinkStaysALinkAndAFileKeepsItsMode) {
  write_file(folder_ / "f", "old");
  fs::permissions(folder_ / "f", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_directory(folder_ / "links");
  fs::create_symlink("../f", folder_ / "links" / "near");
  fs::create_symlink("links/near", folder_ / "far");
  write_file(folder_ / "far", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "far"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "links" / "near"));
  EXPECT_EQ(read_file(folder_ / "f"), "new");
  EXPECT_EQ(fs::status(folder_ / "f").permissions(), fs::perms::owner_read | fs::perms::owner_write);

  fs::create_symlink("later", folder_ / "dangling");
  write_file(folder_ / "dangling", "made");
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(read_file(folder_ / "later"), "made");
}

TEST_F(Files, WhatIsNoFileIsWrittenIntoOrRefusedAndStaysWhatItIs) {
  write_file("/dev/null", "swallowed");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_NE(testing::error_of([&] { write_file("/dev/full", "x"); }).find("No space left"), std::string::npos);

  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(testing::error_of([&] { write_file(pipe, "x"); }).rfind(pipe.string(), 0), 0U) << "nobody reads it";
  EXPECT_NE(testing::error_of([&] { (void)read_file(pipe); }).find("not a regular file"), std::string::npos);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file(pipe, "through");
  std::string arrived(7, ' ');
  EXPECT_EQ(::read(reader, arrived.data(), arrived.size()), 7);
  EXPECT_EQ(arrived, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));

  EXPECT_NE(testing::error_of([&] { write_file(folder_, "x"); }).find("Is a directory"), std::string::npos);
}

TEST_F(Files, ADatabaseIsNotReplaced) {
  const std::string database = std::string("SQLite format 3") + '\0' + "pages";
  write_file(folder_ / "r.db", database);
  fs::create_symlink("r.db", folder_ / "page.html");
  const std::string message = testing::error_of([&] { write_file(folder_ / "page.html", "<html>"); });
  EXPECT_NE(message.find("found a database"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder_ / "r.db"), database);
}

TEST_F(Files, MappedFileMovesWithoutLosingOrUnmappingTwice) {
  write_file(folder_ / "a", "aaa");
  write_file(folder_ / "b", "bb");
  MappedFile a(folder_ / "a");
  MappedFile b(folder_ / "b");
  const std::byte* data = a.bytes().data();
  MappedFile moved = std::move(a);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(moved.path(), folder_ / "a");
  moved = std::move(b);
  EXPECT_EQ(moved.bytes().size(), 2U);
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'b');
}

TEST(Sha256, AgreesWithThePublishedVectors) {  // FIPS 180-2, appendix B
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace kvarena
