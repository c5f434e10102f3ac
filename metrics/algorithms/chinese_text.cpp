#include "metrics/algorithms/chinese_text.h"

#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr std::u32string_view kChinesePunctuation =
    U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞"
    U"〟〰〾〿–—‘’‛“”„‟…‧﹏.";

}  // namespace

std::string normalized_chinese(std::string_view text) {
  const std::string lowered = lower(text);
  std::string out;
  for (size_t i = 0; i < lowered.size();) {
    const char32_t c = next_code_point(lowered, i);
    const bool dropped =
        is_ascii_punctuation(c) || is_space(c) || kChinesePunctuation.find(c) != std::u32string_view::npos;
    if (!dropped) append_utf8(out, c);
  }
  return out;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) append_utf8(characters.emplace_back(), next_code_point(text, i));
  return characters;
}

}  // namespace kvarena::metrics
