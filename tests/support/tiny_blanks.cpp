#include "tests/support/tiny_blanks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/files.h"

namespace kvarena::testing {

void add_blanks(const std::filesystem::path& folder) {
  nlohmann::json tokenizer = nlohmann::json::parse(read_file(folder / "tokenizer.json"));
  nlohmann::json& model = tokenizer["model"];
  const std::vector<std::string> pieces = {"Ġ", "Ċ", "ga", "te", "gate", "Ġgate"};
  std::vector<std::string> letters;
  for (const auto& [letter, id] : model["vocab"].items()) {
    if (id >= 128 - std::ssize(pieces)) letters.push_back(letter);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    model["vocab"][pieces[i]] = model["vocab"][letters[i]];
    model["vocab"].erase(letters[i]);
  }
  model["merges"] = {"g a", "t e", "ga te", "Ġ gate"};
  write_file(folder / "tokenizer.json", tokenizer.dump());
}

}  // namespace kvarena::testing
