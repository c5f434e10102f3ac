#include "harness/evaluate/local_embedder.h"

#include "harness/core/error.h"
#include "harness/core/own_files.h"
#include "harness/model/sentence_encoder.h"
#include "metrics/text_embedder.h"

namespace kvarena::evaluate {
namespace {

class LocalEmbedder final : public metrics::TextEmbedder {
 public:
  explicit LocalEmbedder(const std::filesystem::path& folder) : encoder_(folder) {}
  [[nodiscard]] std::vector<float> embed(std::string_view text) const override { return encoder_.embed(text); }
  [[nodiscard]] bool cuts(std::string_view text) const override { return encoder_.cuts(text); }

 private:
  SentenceEncoder encoder_;
};

}  // namespace

void use_local_embedder(const std::filesystem::path& home) {
  const std::filesystem::path folder = home / "models" / "all-minilm-l6-v2";
  metrics::provide_text_embedder(
      [folder]() -> std::unique_ptr<metrics::TextEmbedder> {
        if (!std::filesystem::exists(folder)) {
          fail({.place = folder.string(),
                .found = "no such folder",
                .expected = "the sentence encoder all-MiniLM-L6-v2",
                .action = setup_command() + " fetches it"});
        }
        return std::make_unique<LocalEmbedder>(folder);
      },
      {folder / "config.json", folder / "model.safetensors", folder / "tokenizer.json"});
}

}  // namespace kvarena::evaluate
