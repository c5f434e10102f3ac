#include "harness/model/tokenizer/byte_alphabet.h"

#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> alphabet{};
  uint16_t next = 0x100;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

/// Table from characters below U+0144, the last of the alphabet, to bytes; -1 for characters outside it.
std::array<int16_t, 0x144> make_inverse() {
  std::array<int16_t, 0x144> inverse{};
  inverse.fill(-1);
  for (int16_t byte = 0; byte < 256; ++byte) inverse[byte_alphabet()[static_cast<size_t>(byte)]] = byte;
  return inverse;
}

}  // namespace

const std::array<uint16_t, 256>& byte_alphabet() {
  static const std::array<uint16_t, 256> alphabet = make_alphabet();
  return alphabet;
}

bool append_bytes_of(std::string_view text, std::string& out) {
  static const std::array<int16_t, 0x144> inverse = make_inverse();
  const size_t before = out.size();
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (c.value >= inverse.size() || inverse[c.value] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(inverse[c.value]));
    at += c.length;
  }
  return true;
}

std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, byte_alphabet()[static_cast<uint8_t>(byte)]);
  return text;
}

}  // namespace kvarena
