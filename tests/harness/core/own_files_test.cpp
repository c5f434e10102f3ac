// Files that come with the program: found in its folder, from any working folder.

#include "harness/core/own_files.h"

#include <gtest/gtest.h>

#include "harness/core/files.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = KVARENA_SOURCE_DIR;

TEST(OwnFiles, ABuildFolderHasThem) {
  EXPECT_EQ(own_file("configs"), fs::canonical(kSource / "configs"));
  EXPECT_EQ(own_file("child.py"), fs::canonical(kSource / "python/kvarena/child.py"));
  EXPECT_EQ(own_file("plugins/engine.py"), fs::canonical(kSource / "python/kvarena/plugins/engine.py"));
  EXPECT_EQ(setup_command(), "`scripts/setup`");
}

TEST(OwnFiles, ACopiedProgramSaysWhatItLacks) {
  const std::string said = testing::error_of([] { (void)own_file("nothing"); });
  EXPECT_TRUE(said.find("core_test: found no ") != std::string::npos) << said;
  EXPECT_TRUE(said.find("/nothing, expected the program in the folder that it was built or installed in; ") !=
              std::string::npos)
      << said;
}

TEST(OwnFiles, AConfigIsFoundFromAnywhere) {
  const testing::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_EQ(find_config("configs/quickstart.json"), fs::canonical(kSource / "configs/quickstart.json"));
  EXPECT_EQ(find_config("configs/none.json"), "configs/none.json");
  EXPECT_EQ(find_config("quickstart.json"), "quickstart.json");
  fs::create_directory("configs");
  write_file("configs/quickstart.json", "{}");
  EXPECT_EQ(find_config("configs/quickstart.json"), "configs/quickstart.json") << "the file that is here";
  fs::current_path(before);
}

}  // namespace
}  // namespace kvarena
