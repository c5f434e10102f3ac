#pragma once
// Chinese word segmentation exactly as the Python package jieba 0.42.1 does it (MIT), with that package's own data
// files.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvarena::metrics {

/// Immutable after loading; may be used by many threads.
class Jieba {
 public:
  /// Reads dict.txt and finalseg/prob_emit.py of the package's folder (half a second, about 60 MB). Throws UserError
  /// that names the missing or broken file and says where to get it.
  explicit Jieba(const std::filesystem::path& folder);

  /// list(jieba.cut(text)): cut_all=False, HMM=True. The pieces joined give the text.
  [[nodiscard]] std::vector<std::string> cut(std::string_view text) const;

 private:
  using Text = std::u32string_view;
  using Pieces = std::vector<std::u32string>;

  struct Hash {
    using is_transparent = void;
    size_t operator()(Text text) const { return std::hash<Text>{}(text); }
  };

  void load_dictionary(const std::filesystem::path& file);
  void load_emissions(const std::filesystem::path& file);
  [[nodiscard]] int64_t frequency(Text word) const;
  [[nodiscard]] std::vector<size_t> best_ends(Text block) const;
  void cut_block(Text block, Pieces& out) const;
  void flush_single_characters(std::u32string& buffer, Pieces& out) const;
  void cut_unknown(Text text, Pieces& out) const;
  void cut_by_hmm(Text run, Pieces& out) const;

  /// Frequency of each word; prefixes of words are there with 0.
  std::unordered_map<std::u32string, int64_t, Hash, std::equal_to<>> frequencies_;
  double log_total_ = 0;
  std::unordered_map<char32_t, double> emissions_[4];  // log P(character | state), states B, E, M, S
};

/// The package's data in $KVARENA_HOME/jieba (KVARENA_HOME defaults to ~/.cache/kvarena).
[[nodiscard]] std::filesystem::path jieba_folder();

/// Its files that are read.
[[nodiscard]] std::vector<std::filesystem::path> jieba_files();

/// Loaded from jieba_folder() at the first call.
[[nodiscard]] const Jieba& jieba();

}  // namespace kvarena::metrics
