// Against implementations that are not ours: fixture and its script are tests/golden/metrics_differential.json and
// metrics_make.py. The texts are drawn here again; a hash in the fixture proves that they are the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "metrics/algorithms/difflib.h"
#include "metrics/algorithms/lcs.h"
#include "metrics/algorithms/porter.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"
#include "tests/support/compared.h"

namespace kvarena::metrics {
namespace {

const nlohmann::json& fixture() {
  static const nlohmann::json kFixture = nlohmann::json::parse(
      read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_differential.json"));
  return kFixture;
}

class Draws {  // SplitMix64, as in metrics_make.py
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  size_t below(size_t bound) {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<size_t>((z ^ (z >> 31)) % bound);
  }

 private:
  uint64_t state_;
};

std::string text(Draws& draws, size_t longest) {
  static const std::vector<std::string> kWords = split_on(
      "the ferry Ferry harbour council running runs timetable tables sky skies 12 3.5 co-author don't naïve "
      "Straße 港口 happily national rational , ! \u00a0 \u3000 \n . .. the of of a an",
      " ");
  static const std::vector<std::string> kSeparators = {" ", " ", " ", " ", "  ", "\n", ". ", ".", "\t", ""};
  std::string out;
  for (size_t i = draws.below(longest); i > 0; --i) {
    out += kWords[draws.below(kWords.size())];
    out += kSeparators[draws.below(kSeparators.size())];
  }
  return out;
}

std::u32string code(Draws& draws, size_t longest, size_t letters) {
  std::u32string out;
  for (size_t i = draws.below(longest); i > 0; --i) out += U"abcdefghijé港 (){}=+"[draws.below(letters)];
  return out;
}

struct Texts {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::pair<std::u32string, std::u32string>> codes;
};

const Texts& texts() {
  static const Texts kTexts = [] {
    Texts t;
    Draws draws(20240607);
    for (int i = 0; i < 1000; ++i) {
      std::string prediction = text(draws, 40);
      t.pairs.emplace_back(std::move(prediction), text(draws, 40));
    }
    for (int i = 0; i < 400; ++i) {
      const size_t letters = 4 + draws.below(14);
      const size_t longest = i % 4 == 0 ? 420 : 60;
      std::u32string a = code(draws, longest, letters);
      t.codes.emplace_back(std::move(a), code(draws, longest, letters));
    }
    return t;
  }();
  return kTexts;
}

TEST(Differential, TheTestDrawsTheTextsTheFixtureWasMadeFrom) {
  std::string everything;
  for (const auto& [a, b] : texts().pairs) everything += a + '\0' + b + '\0';
  for (const auto& [a, b] : texts().codes) everything += encode_utf8(a) + '\0' + encode_utf8(b) + '\0';
  everything.pop_back();
  EXPECT_EQ(sha256(everything), fixture().at("texts_sha256").get<std::string>());
}

TEST(Differential, RougeEqualsThePythonPackageOnAThousandPairs) {
  const auto& expected = fixture().at("rouge");
  ASSERT_EQ(expected.size(), 1000u);
  testing::compared_scores("rouge_l", expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [prediction, reference] = texts().pairs[i];
    SCOPED_TRACE("prediction: " + prediction + "\nreference: " + reference);
    EXPECT_NEAR(pltrdy_rouge_n(prediction, reference, 1).f, expected[i][0].get<double>(), 1e-12);
    EXPECT_NEAR(pltrdy_rouge_n(prediction, reference, 2).f, expected[i][1].get<double>(), 1e-12);
    EXPECT_NEAR(pltrdy_rouge_l(prediction, reference).f, expected[i][2].get<double>(), 1e-12);
  }
}

TEST(Differential, GoogleRougeEqualsThePythonPackage) {
  const auto& expected = fixture().at("google_rouge");
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [prediction, reference] = texts().pairs[i];
    SCOPED_TRACE("prediction: " + prediction + "\nreference: " + reference);
    EXPECT_NEAR(google_rouge_n(prediction, reference, 1, true).f, expected[i][0].get<double>(), 1e-12);
    EXPECT_NEAR(google_rouge_l(prediction, reference, true).f, expected[i][1].get<double>(), 1e-12);
    EXPECT_NEAR(google_rouge_lsum(prediction, reference, true).f, expected[i][2].get<double>(), 1e-12);
  }
}

TEST(Differential, DifflibRatioEqualsPythonsWithAndWithoutAutojunk) {
  const auto& expected = fixture().at("difflib");
  testing::compared_scores("code_sim", expected.size());
  int64_t junked = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [a, b] = texts().codes[i];
    junked += b.size() >= 200;
    EXPECT_NEAR(difflib_ratio(a, b), expected[i].get<double>(), 1e-12) << encode_utf8(a) << "\n" << encode_utf8(b);
  }
  EXPECT_GT(junked, 20) << "the fixture must hold texts long enough for autojunk";
}

TEST(Differential, PorterStemsEqualNltks) {
  const auto stems = split_on(
      "run hop fail motor tann plaster agree happ sk fl enjoy rat relat condit digit conform radic "
      "differ vil analog vietnam predic oper feud decis hope call form sensit triplic electr good "
      "reviv allow infer airlin gyroscop adjust defens irrit replac commun activ angular homolog "
      "effect bowdler prob ceas control roll y syzyg",
      " ");
  const auto suffixes = split_on(
      "|s|es|ies|ied|ed|eed|ing|y|ational|tional|enci|anci|izer|bli|abli|alli|entli|eli|ousli|ization|ation|ator|"
      "alism|iveness|fulness|ousness|aliti|iviti|biliti|fulli|logi|icate|ative|alize|iciti|ical|ful|ness|al|ance|"
      "ence|er|ic|able|ible|ant|ement|ment|ent|sion|tion|ion|ou|ism|ate|iti|ous|ive|ize|e|ll|sses|ss|ying",
      "|");
  std::vector<std::string> words;
  std::string joined;
  for (const auto& stem : stems) {
    for (const auto& suffix : suffixes) {
      words.push_back(stem + suffix);
      joined += (joined.empty() ? "" : " ") + words.back();
    }
  }
  ASSERT_EQ(sha256(joined), fixture().at("porter_words_sha256").get<std::string>());
  const auto expected = split_on(fixture().at("porter_stems").get<std::string>(), " ");
  ASSERT_EQ(expected.size(), words.size());
  for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(porter_stem(words[i]), expected[i]) << words[i];
}

TEST(Differential, UnicodeClassesAndLowerCaseEqualPythonsOnEveryCodePoint) {
  std::string lowered;
  std::string classes;
  std::string sigmas;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string one;
    append_utf8(one, c);
    lowered += lower(one) + "\n";
    classes += std::to_string(is_space(c) + 2 * is_decimal(c) + 4 * is_word(c));
    sigmas += lower("A" + one + "Σ" + one + "a") + "\n";
  }
  EXPECT_EQ(sha256(lowered), fixture().at("lower_sha256").get<std::string>());
  EXPECT_EQ(sha256(classes), fixture().at("classes_sha256").get<std::string>());
  EXPECT_EQ(sha256(sigmas), fixture().at("final_sigma_sha256").get<std::string>());
}

TEST(Differential, EveryByteAndEveryPairIsDecodedAsPythonDoes) {
  std::string decoded;
  const auto add = [&](const std::string& bytes) {
    const std::u32string text = decode_utf8(bytes);
    decoded += encode_utf8(text) + "\n";
    EXPECT_EQ(is_valid_utf8(bytes), encode_utf8(text) == bytes);
  };
  for (int a = 0; a < 256; ++a) add(std::string(1, static_cast<char>(a)));
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) add({static_cast<char>(a), static_cast<char>(b)});
  }
  EXPECT_EQ(sha256(decoded), fixture().at("decoded_bytes_sha256").get<std::string>());
}

TEST(Differential, RoundingIsPythonsAndNumpysWhereTheyDiffer) {
  for (const auto& pair : fixture().at("round")) EXPECT_EQ(python_round(pair[0], 2), pair[1].get<double>());
  EXPECT_EQ(python_round(2.675, 2), 2.67);
  EXPECT_EQ(numpy_round(2.675, 2), 2.68);
}

// The bit-parallel table against the textbook one, over lengths around the 64-bit word and both tie rules.
TEST(LongestCommonSubsequence, PathEqualsTheTextbookBacktracking) {
  Draws draws(7);
  for (const size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 127u, 130u}) {
    for (const size_t m : {0u, 1u, 3u, 63u, 64u, 65u, 129u}) {
      std::vector<int> x(n), y(m);
      for (int& v : x) v = static_cast<int>(draws.below(6));
      for (int& v : y) v = static_cast<int>(draws.below(6));
      std::vector<std::vector<int64_t>> table(n + 1, std::vector<int64_t>(m + 1));
      for (size_t i = 1; i <= n; ++i) {
        for (size_t j = 1; j <= m; ++j) {
          table[i][j] = x[i - 1] == y[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
        }
      }
      EXPECT_EQ(lcs_length(x, y), table[n][m]);
      for (const Tie tie : {Tie::drop_x, Tie::drop_y}) {
        std::vector<int64_t> path;
        for (size_t i = n, j = m; i > 0 && j > 0;) {
          if (x[i - 1] == y[j - 1]) {
            path.insert(path.begin(), static_cast<int64_t>(i - 1));
            --i, --j;
          } else if (tie == Tie::drop_x ? table[i][j - 1] > table[i - 1][j] : table[i - 1][j] <= table[i][j - 1]) {
            --j;
          } else {
            --i;
          }
        }
        EXPECT_EQ(lcs_path(x, y, tie).positions, path) << n << " x " << m;
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::metrics
