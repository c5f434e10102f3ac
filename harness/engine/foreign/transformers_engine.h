#pragma once
// Another engine beside this project's: a model in Hugging Face's transformers (python/kvarena/plugins/engine.py).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvarena {

class PythonChild;

/// A prompt under one method, as token ids.
struct ForeignRequest {
  std::span<const int32_t> prompt;    // what the method compresses
  std::span<const int32_t> question;  // what follows it
  nlohmann::json method;              // an entry of a config; null: full KV
  int64_t chunk = 0;                  // prompt tokens in a pass; 0 = all, which presses expect
  bool kept = false;                  // whether to say which entries stay
};

struct ForeignOutcome {
  int64_t bytes = 0;          // that the cache's tensors hold after the prompt
  int64_t dropped = 0;        // entries that attention no longer sees, whether they are held or not
  bool acted = false;         // whether the method changed anything of the cache
  double read_seconds = 0;    // of the prompt, compression included
  double decode_seconds = 0;  // of question and answer, the first time
  /// Positions that attention sees, [layers][kv_heads], ascending, where asked for.
  std::vector<std::vector<std::vector<int32_t>>> kept;
};

/// A Python process with one model, started when it is first needed and again after it died.
class TransformersEngine {
 public:
  /// `dtype`: f32, f16 or bf16, of weights and cache; `device`: cpu or cuda.
  TransformersEngine(const std::filesystem::path& checkpoint, const std::string& dtype, const std::string& device);
  ~TransformersEngine();

  /// Packages that decide results: "transformers 5.2.0, torch 2.11.0, kvpress 0.5.5". Throws UserError where Python or
  /// a package is absent.
  [[nodiscard]] const std::string& version();
  /// Loads the weights; `threads`: at most so many, 0 = as many as torch takes. Throws UserError with Python's reason.
  void load(int64_t threads);

  /// Back to the end of the prompt, as an answer of Next.
  static constexpr int32_t kAgain = -1;
  /// Given the logits of a step, the token to feed, kAgain, or nothing at the end.
  using Next = std::function<std::optional<int32_t>(std::span<const float> logits)>;

  /// Reads the prompt, then asks `next` after the question and after each token. Throws UserError with Python's reason,
  /// and what `next` throws.
  [[nodiscard]] ForeignOutcome answer(const ForeignRequest& request, const Next& next);

 private:
  [[nodiscard]] nlohmann::json message(const char* verb) const;

  std::unique_ptr<PythonChild> child_;
  nlohmann::json settings_;
  std::string version_;
};

}  // namespace kvarena
