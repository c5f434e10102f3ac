#include "harness/model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "harness/core/error.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena::unicode {
namespace {

/// The White_Space property (PropList.txt), which is not a general category.
bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

uint8_t category_bit(uint32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return kOtherCategory;
    default: return 0;  // separators, which the space bit describes
  }
}

utf8proc_option_t options_of(Form form) {
  const int stable = UTF8PROC_STABLE;
  switch (form) {
    case Form::nfc: return static_cast<utf8proc_option_t>(stable | UTF8PROC_COMPOSE);
    case Form::nfd: return static_cast<utf8proc_option_t>(stable | UTF8PROC_DECOMPOSE);
    case Form::nfkc: return static_cast<utf8proc_option_t>(stable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Form::nfkd: return static_cast<utf8proc_option_t>(stable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return static_cast<utf8proc_option_t>(stable);
}

void append_normalized(std::string& out, std::string_view text, Form form) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  KVARENA_ASSERT(length >= 0, std::string("utf8proc: ") + utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
}

}  // namespace

namespace detail {

uint8_t classify(uint32_t code_point) {
  uint8_t bits = category_bit(code_point);
  if (is_white_space(code_point)) bits |= kSpace;
  if (code_point == '\r' || code_point == '\n') bits |= kNewline;
  return bits;
}

ClassTable::ClassTable() : of{} {
  for (uint32_t c = 0; c < 0x10000; ++c) of[c] = classify(c);
}

const ClassTable kTable;

}  // namespace detail

bool is_nonspacing_mark(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_MN;
}

void append_lowercase(std::string& out, uint32_t code_point) {
  if (code_point == 0x130) {  // the one special lower case that is two characters (SpecialCasing.txt)
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
}

bool is_surely_nfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    // Below U+0300 nothing combines; the others are general punctuation, kana and Han characters that are their own
    // composed form and start a character.
    const bool safe = c.value < 0x300 || (c.value >= 0x2010 && c.value <= 0x2027) ||
                      (c.value >= 0x3001 && c.value <= 0x3029) || (c.value >= 0x4e00 && c.value <= 0x9fff) ||
                      (c.value >= 0xff01 && c.value <= 0xff5e);
    if (!safe) return false;
    at += c.length;
  }
  return true;
}

std::string normalize(std::string_view text, Form form) {
  // ASCII never changes, and nothing composes backwards across it: only runs of other characters need work, with the
  // ASCII character before them, which an accent may join.
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t begin = at > done ? at - 1 : at;
    size_t end = at;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x80) ++end;
    out += text.substr(done, begin - done);
    const std::string_view run = text.substr(begin, end - begin);
    if (form == Form::nfc && is_surely_nfc(run)) {
      out += run;
    } else {
      append_normalized(out, run, form);
    }
    done = at = end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace kvarena::unicode
