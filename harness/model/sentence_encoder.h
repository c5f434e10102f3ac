#pragma once
// Sentence embeddings by a BERT encoder in the manner of sentence-transformers: the text's word pieces between [CLS]
// and [SEP], cut to 256, mean over the last hidden states, length 1. Read from a Hugging Face folder
// (sentence-transformers/all-MiniLM-L6-v2: 6 layers, hidden size 384, 12 heads).

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace kvarena {

/// Immutable after loading: any number of threads may use one at once.
class SentenceEncoder {
 public:
  /// `folder` holds config.json, tokenizer.json and model.safetensors. Throws UserError naming the file and what is
  /// wrong with it.
  explicit SentenceEncoder(const std::filesystem::path& folder);
  ~SentenceEncoder();

  /// The embedding [hidden_size] of a text, of length 1. An empty text has one too. Equal texts give equal bits.
  [[nodiscard]] std::vector<float> embed(std::string_view text) const;
  /// True when the text is longer than what embed() reads of it.
  [[nodiscard]] bool cuts(std::string_view text) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace kvarena
