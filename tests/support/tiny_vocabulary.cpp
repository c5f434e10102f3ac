#include "tests/support/tiny_vocabulary.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace kvarena::testing {
namespace {

/// The bytes of a token in the byte-level alphabet.
std::string letter_of(int32_t byte) {
  const bool printable = byte > 32 && byte < 127;
  const auto code = static_cast<uint32_t>(printable ? byte : 0x100 + (byte < 33 ? byte : 33));
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

void write_vocabulary(const std::filesystem::path& folder, const std::vector<int32_t>& order,
                      const std::vector<std::pair<char, char>>& pairs) {
  using nlohmann::json;
  json vocabulary, merges = json::array();
  const size_t letters = order.size() - pairs.size();
  for (size_t id = 0; id < letters; ++id) vocabulary[letter_of(order[id])] = id;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string one = letter_of(pairs[i].first), two = letter_of(pairs[i].second);
    vocabulary[one + two] = letters + i;
    merges.push_back(one + " " + two);
  }
  json tokenizer = json::parse(std::ifstream(folder / "tokenizer.json"));
  tokenizer["model"]["vocab"] = vocabulary;
  tokenizer["model"]["merges"] = merges;
  std::ofstream(folder / "tokenizer.json") << tokenizer;
}

std::vector<int32_t> ascii() {
  std::vector<int32_t> order(128);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int32_t> shuffled() {
  std::vector<int32_t> order = ascii();
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>((i * 37 + 11) % order.size());
  return order;
}

}  // namespace kvarena::testing
