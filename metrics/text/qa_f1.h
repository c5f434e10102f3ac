#pragma once
// Token F1 of question answering (SQuAD's, as LongBench uses it).

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

inline constexpr std::string_view kArticles[] = {"a", "an", "the"};

/// Lower-case, every mark of string.punctuation deleted, the `blanked` words replaced by blanks, split on white space.
[[nodiscard]] std::vector<std::string> normalized_words(std::string_view text,
                                                        std::span<const std::string_view> blanked = kArticles);

/// The normalized words with a blank between.
[[nodiscard]] std::string normalized_text(std::string_view text);

struct PrecisionRecallF {
  double precision = 0;
  double recall = 0;
  double f = 0;
};

/// F1 of two bags of tokens; all zero when nothing is common, also when both are empty.
[[nodiscard]] PrecisionRecallF bag_f1(std::vector<std::string> predicted, std::vector<std::string> wanted);

/// bag_f1 of the normalized words.
[[nodiscard]] double qa_f1(std::string_view prediction, std::string_view answer);

}  // namespace kvarena::metrics
