#include "datasets/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr std::array<const char*, 4> kSlots = {"OPTION_A", "OPTION_B", "OPTION_C", "OPTION_D"};

}  // namespace

std::vector<std::string> options_field(const Row& row, const std::string& place) {
  std::vector<std::string> options = strings_field(row, "options", place);
  if (options.size() != kSlots.size()) {
    fail({.place = place + ": options",
          .found = fmt::format("{}", options.size()),
          .expected = fmt::format("{}", kSlots.size())});
  }
  return options;
}

std::vector<Slot> option_slots(const std::vector<std::string>& options) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < options.size(); ++i) slots.push_back({kSlots.at(i), options[i]});
  return slots;
}

std::string option_letter(const std::vector<std::string>& options, const std::string& answer,
                          const std::string& place) {
  const auto found = std::ranges::find(options, answer);
  if (found == options.end()) {
    fail({.place = place + ": answer", .found = fmt::format("\"{}\"", answer), .expected = "one of the options"});
  }
  return std::string(1, static_cast<char>('A' + (found - options.begin())));
}

}  // namespace kvarena::datasets
