#pragma once
// How metrics get embeddings without knowing models: whoever can run an encoder hands one in.

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

class TextEmbedder {
 public:
  virtual ~TextEmbedder() = default;
  /// Equal texts give equal embeddings, all of one length.
  [[nodiscard]] virtual std::vector<float> embed(std::string_view text) const = 0;
  /// True when embed() reads only the beginning of the text.
  [[nodiscard]] virtual bool cuts(std::string_view text) const = 0;
};

/// `make` is called when the first embedding is asked for, and reads `files`. Before any thread scores; the last call
/// counts.
void provide_text_embedder(std::function<std::unique_ptr<TextEmbedder>()> make,
                           std::vector<std::filesystem::path> files = {});

/// The files of the encoder in force.
[[nodiscard]] std::vector<std::filesystem::path> text_embedder_files();

/// The encoder in force. Throws UserError when nobody provided one, and what `make` throws.
[[nodiscard]] const TextEmbedder& text_embedder();

}  // namespace kvarena::metrics
