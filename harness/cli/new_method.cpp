// kvarena new-method NAME --family F: the first text of a method of one's own.

#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/commands.h"
#include "harness/cli/skeletons.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/page.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::string name;
  std::string family;
  std::optional<std::filesystem::path> out;

  void declare(OptionSet& o) {
    std::vector<std::string> families;
    for (const Skeleton& skeleton : skeletons()) families.emplace_back(skeleton.family);
    o.positional("NAME", name).help("as it will stand in configs: lower case, digits, underscores");
    o.option("family", "FAMILY", family).choices(families).help("what the method does").required();
    o.option("out", "FILE", out)
        .help("the file to write")
        .default_text("methods/<folder>/NAME.cpp of this source tree");
  }
};

void check_name(const std::string& name) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool valid = !name.empty() && is_lower(name.front()) && std::ranges::all_of(name, [&](char c) {
    return is_lower(c) || (c >= '0' && c <= '9') || c == '_';
  });
  if (!valid) {
    fail({.place = "NAME",
          .found = fmt::format("\"{}\"", name),
          .expected = "a letter, then letters, digits and underscores, all in lower case"});
  }
  if (const MethodEntry* taken = find_method(name)) {
    fail({.place = "NAME",
          .found = fmt::format("\"{}\", which is taken by {}", name, taken->info.title),
          .expected = "a name that no method has"});
  }
}

/// The source tree that the working folder is in.
std::filesystem::path source_tree() {
  const std::filesystem::path here = std::filesystem::current_path();
  for (std::filesystem::path folder = here;; folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "methods" / "CMakeLists.txt")) return folder;
    if (folder == folder.parent_path()) break;
  }
  fail({.place = here.string(),
        .found = "no methods/CMakeLists.txt here or above",
        .expected = "the source tree as working folder, or --out FILE"});
}

int run(const Options& options) {
  check_name(options.name);
  const Skeleton& skeleton = *std::ranges::find(skeletons(), options.family, &Skeleton::family);
  const std::filesystem::path file =
      options.out ? *options.out : source_tree() / "methods" / skeleton.folder / (options.name + ".cpp");
  if (std::filesystem::exists(file)) {
    fail({.place = file.string(), .found = "a file", .expected = "none: an existing file is never overwritten"});
  }
  write_file(file, fill_skeleton(skeleton, options.name));
  print(fmt::format("wrote {}: a method that {}\n", file.string(), skeleton.idea));
  fmt::print(stderr,
             "next: scripts/build release kvarena conformance_test, then\n"
             "  build/release/bin/kvarena methods {0}\n"
             "  build/release/bin/conformance_test --gtest_filter='*/{0}'\n"
             "  build/release/bin/kvarena schema > configs/schema.json\n",
             options.name);
  return 0;
}

}  // namespace

Command new_method_command() {
  return make_command<Options>(
      {.name = "new-method",
       .summary = "write the first text of a method: it compiles, runs and passes the conformance suite",
       .examples = {{"kvarena new-method my_idea --family dropping", "methods/compression/my_idea.cpp, 30 lines"}}},
      run);
}

}  // namespace kvarena::cli
