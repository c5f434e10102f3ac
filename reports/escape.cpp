#include "reports/escape.h"

#include <cctype>
#include <charconv>
#include <cstdint>
#include <utility>

namespace kvarena::reports {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Decoded {
  uint32_t code = 0;
  size_t length = 0;  // bytes; 0 = the byte starts no valid sequence
};

// One code point of strict UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return {};
  uint32_t code = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length};
}

bool acts_on_screen(uint32_t code) {
  const bool control = (code < 0x20 && code != '\t' && code != '\n') || (code >= 0x7F && code < 0xA0);
  const bool direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0x200E ||
                         code == 0x200F || code == 0x061C;
  const bool breaks_scripts = code == 0x2028 || code == 0x2029;  // line ends inside JavaScript
  const bool no_character = (code & 0xFFFE) == 0xFFFE || (code >= 0xFDD0 && code <= 0xFDEF);
  return control || direction || breaks_scripts || no_character;
}

// Signs that our own tables and captions print, as LaTeX without packages.
std::string_view latex_sign(uint32_t code) {
  constexpr std::pair<uint32_t, std::string_view> kSigns[] = {{'\\', "\\textbackslash{}"},
                                                              {'{', "\\{"},
                                                              {'}', "\\}"},
                                                              {'$', "\\$"},
                                                              {'&', "\\&"},
                                                              {'#', "\\#"},
                                                              {'_', "\\_"},
                                                              {'%', "\\%"},
                                                              {'^', "\\textasciicircum{}"},
                                                              {'~', "\\textasciitilde{}"},
                                                              {'<', "\\textless{}"},
                                                              {'>', "\\textgreater{}"},
                                                              {'|', "\\textbar{}"},
                                                              {'"', "{\\char34}"},
                                                              {'`', "\\textasciigrave{}"},
                                                              {'[', "{[}"},
                                                              {']', "{]}"},
                                                              {'*', "{*}"},
                                                              {'\n', " "},
                                                              {'\t', " "},
                                                              {0x2212, "$-$"},
                                                              {0xD7, "$\\times$"},
                                                              {0x2248, "$\\approx$"},
                                                              {0x00B1, "$\\pm$"},
                                                              {0x2264, "$\\leq$"},
                                                              {0x2265, "$\\geq$"},
                                                              {0x2014, "---"},
                                                              {0x2013, "--"},
                                                              {0x2026, "\\ldots{}"},
                                                              {0x2192, "$\\to$"},
                                                              {0x00B7, "$\\cdot$"},
                                                              {0x2191, "$\\uparrow$"},
                                                              {0x2193, "$\\downarrow$"},
                                                              {0x25B2, "$\\uparrow$"},
                                                              {0x25BC, "$\\downarrow$"},
                                                              {0x2260, "$\\neq$"},
                                                              {0x221E, "$\\infty$"},
                                                              {0x2018, "`"},
                                                              {0x2019, "'"},
                                                              {0x201C, "``"},
                                                              {0x201D, "''"}};
  for (const auto& [sign, text] : kSigns) {
    if (sign == code) return text;
  }
  // Icelandic letters and angle quotes need a font encoding that documents rarely load, other scripts a font.
  constexpr std::u32string_view kNoGlyph = U"\u00AB\u00BB\u00D0\u00DE\u00F0\u00FE";
  return code > 0xFF || kNoGlyph.find(code) != std::u32string_view::npos ? "?" : "";
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    if (next.length == 0 || acts_on_screen(next.code)) {
      clean += kReplacement;
    } else {
      clean += text.substr(at, next.length);
    }
    at += next.length == 0 ? 1 : next.length;
  }
  return clean;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string escape_latex(std::string_view text) {
  const std::string clean = clean_text(text);
  std::string out;
  for (size_t at = 0; at < clean.size();) {
    const Decoded next = decode(clean, at);
    const std::string_view sign = latex_sign(next.code);
    out += sign.empty() ? std::string_view(clean).substr(at, next.length) : sign;
    at += next.length;
  }
  return out;
}

std::string escape_markdown(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    if (c == '\n' || c == '\t') {
      out += ' ';
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (std::string_view("\\`*_{}[]|#~$!").find(c) != std::string_view::npos) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  // A bare address would become a link by itself; an empty comment-free break keeps it text.
  for (size_t at = out.find("://"); at != std::string::npos; at = out.find("://", at + 5)) out.replace(at, 1, "&#58;");
  return out;
}

std::string csv_field(std::string_view text) {
  std::string clean = clean_text(text);
  if (!clean.empty() && std::string_view("=+-@\t").find(clean[0]) != std::string_view::npos) {
    double number = 0;
    const char* end = clean.data() + clean.size();
    const auto parsed = std::from_chars(clean.data() + (clean[0] == '+' ? 1 : 0), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) clean = std::string(1, '\'') + clean;
  }
  if (clean.find_first_of(",\"\n\r") == std::string::npos) return clean;
  std::string quoted = "\"";
  for (const char c : clean) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string data_url(std::string_view mime, std::string_view content) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string url = "data:";
  url += mime;
  url += ";base64,";
  url.reserve(url.size() + content.size() * 4 / 3 + 4);
  for (size_t at = 0; at < content.size(); at += 3) {
    uint32_t three = 0;
    for (size_t i = 0; i < 3; ++i) {
      three = three << 8 | (at + i < content.size() ? static_cast<uint8_t>(content[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) url += at + i <= content.size() ? kDigits[three >> (18 - 6 * i) & 63] : '=';
  }
  return url;
}

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "x" : out;
}

}  // namespace kvarena::reports
