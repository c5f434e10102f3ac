// NLTK's sentences and words, langdetect's languages, Python's letters and draws; fixture by
// tests/golden/metrics_ifeval.py.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/langdetect.h"
#include "metrics/unicode/python_text.h"
#include "tests/metrics/ifeval_support.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

TEST(PythonText, CaseIsPythons) {
  for (const char* upper : {"A", "A 1!", "ÉÑ Ⅳ", "ΑΒΓ", "𝐀"}) EXPECT_TRUE(is_upper(upper) && !is_lower(upper)) << upper;
  for (const char* lower : {"a", "a 1!", "é ß ⓐ", "ª", "ʰ", "𝐚"})
    EXPECT_TRUE(is_lower(lower) && !is_upper(lower)) << lower;
  for (const char* neither : {"", "1", "Aa", "ǅ", "Aǅ", "aǅ", "漢", "Nº"}) {
    EXPECT_FALSE(is_lower(neither) || is_upper(neither)) << neither;
  }
}

TEST(Punkt, SentencesAreNltks) {
  SKIP_WITHOUT(punkt_folder());
  const json &texts = ifeval_fixture()["texts"], &expected = ifeval_fixture()["sentences"];
  ASSERT_GE(texts.size(), 200u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto found = punkt().sentences(text);
    EXPECT_EQ(std::vector<std::string>(found.begin(), found.end()), expected[i].get<std::vector<std::string>>())
        << text;
  }
}

TEST(TreebankWords, AreThoseOfNltksTokenizer) {
  const json &texts = ifeval_fixture()["texts"], &expected = ifeval_fixture()["words"];
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(treebank_words(texts[i].get<std::string>()), expected[i].get<std::vector<std::string>>()) << texts[i];
  }
}

TEST(LanguageDetector, FindsTheLanguagesOfLangdetect) {
  SKIP_WITHOUT(langdetect_folder());
  std::set<std::string> languages;
  for (const json& row : ifeval_fixture()["languages"]) {
    const auto found = language_detector().detect(row[0].get<std::string>());
    EXPECT_EQ(found ? json(*found) : json(), row[1]) << row[0];
    languages.insert(found.value_or("none"));
  }
  EXPECT_GE(languages.size(), 50u);
}

TEST(PackageData, MissingOrBrokenFilesAreSaidWithWhatToDo) {
  const auto folder = std::filesystem::temp_directory_path() / "kvarena_package_data_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "profiles");
  const auto sentences = [&] { return message_of([&] { const Punkt loaded(folder); }); };
  const auto languages = [&] { return message_of([&] { const LanguageDetector loaded(folder); }); };
  EXPECT_NE(sentences().find("abbrev_types.txt"), std::string::npos);
  EXPECT_NE(sentences().find("scripts/setup"), std::string::npos);
  EXPECT_NE(languages().find("messages.properties"), std::string::npos);
  for (const char* name : {"abbrev_types.txt", "sent_starters.txt", "collocations.tab", "ortho_context.tab"}) {
    std::ofstream(folder / name) << "word\n";
  }
  EXPECT_NE(sentences().find("ortho_context.tab"), std::string::npos) << sentences();
  std::ofstream(folder / "messages.properties") << "NGram.LATIN1_EXCLUDE=\\uXYZW\n";
  EXPECT_NE(languages().find("\\uXYZW"), std::string::npos) << languages();
  std::ofstream(folder / "messages.properties") << "NGram.LATIN1_EXCLUDE=\\u00A0\nTO_NORMALIZE_VI_CHARS=A\nDMARK_CLASS="
                                                   "\\u0300\nNORMALIZED_VI_CHARS_0300=\\u00C0\n";
  EXPECT_NE(languages().find("profiles/af"), std::string::npos) << languages();
  std::ofstream(folder / "profiles/af") << "{}";
  EXPECT_NE(languages().find("n_words"), std::string::npos) << languages();
}

}  // namespace
}  // namespace kvarena::metrics
