#include "datasets/prompt.h"

namespace kvarena::datasets {
namespace {

const Slot* slot_at(std::string_view text, size_t open, const std::vector<Slot>& slots) {
  for (const Slot& slot : slots) {
    if (text.substr(open + 1, slot.name.size()) == slot.name && text.substr(open + 1 + slot.name.size(), 1) == "}") {
      return &slot;
    }
  }
  return nullptr;
}

}  // namespace

Rendered render(std::string_view text, const std::vector<Slot>& slots, std::string_view context) {
  Rendered rendered;
  size_t done = 0;
  for (size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
    const Slot* slot = slot_at(text, open, slots);
    if (!slot) continue;
    rendered.text.append(text.substr(done, open - done)).append(slot->value);
    done = open + slot->name.size() + 2;
    if (slot->name == context) rendered.question = rendered.text.size();
  }
  rendered.text.append(text.substr(done));
  return rendered;
}

std::string strip(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kWhite) - begin + 1));
}

}  // namespace kvarena::datasets
