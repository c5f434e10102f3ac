#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/storage/context_folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace {

constexpr const char* kIndex = "kvarena-contexts.json";

/// Objects as an index with the right checksum, so that what is behind it is reached; other text as it is.
std::string with_checksum(std::string_view text) {
  constexpr auto kDeepest = 64;  // deeper ones are for the reader, as they are
  const bool deep = std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; }) > kDeepest;
  const auto objects = nlohmann::json::parse(deep ? "" : text, nullptr, /*allow_exceptions=*/false);
  if (objects.is_discarded()) return std::string(text);
  return nlohmann::json{{"sha256", kvarena::sha256(objects.dump())}, {"objects", objects}}.dump();
}

}  // namespace

/// The bytes are the index of a folder with one object, with a checksum of their own or one that is made for them.
KVARENA_FUZZ(context_folder, data) {
  namespace fs = std::filesystem;
  static const kvarena::testing::TemporaryFolder outside;
  if (data.empty()) return;
  const fs::path folder = outside.path() / "folder";
  const fs::path beside = outside.write("beside", "untouched");
  fs::remove_all(folder);
  const std::array<std::byte, 3> object{};
  { kvarena::storage::ContextFolder(folder).put("key", object); }
  const std::string_view text = kvarena::fuzz::text_of(data.subspan(1));
  kvarena::write_file(folder / kIndex, data[0] % 2 == 0 ? with_checksum(text) : std::string(text));
  kvarena::storage::ContextFolder damaged(folder);
  for (const std::string& key : damaged.keys()) {
    const auto found = damaged.open(key);
    if (found && found->whole() && !std::ranges::equal(found->bytes(), object)) __builtin_trap();
  }
  damaged.put("key", object);
  const auto stored = damaged.open("key");
  if (!stored || !stored->whole() || !fs::exists(beside)) __builtin_trap();
}
