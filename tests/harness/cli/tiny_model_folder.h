#pragma once
// A random model of three layers as a folder in Hugging Face layout, for the commands that run one.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/harness/cli/subprocess.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::testing {

/// Byte-level tokens of tests/golden/model/tiny_llama: 301 of them; a window of 256 positions unless said.
class TinyModelFolder {
 public:
  static constexpr int64_t kVocabulary = 301;
  static constexpr int64_t kWindow = 256;

  explicit TinyModelFolder(int64_t window = kWindow) {
    ModelConfig config = tiny_config();
    config.vocab_size = kVocabulary;
    write_config(config, window);
    write_weights(weights(), RandomCheckpoint(llama_tensors(config), 5));
    const std::filesystem::path golden = std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/model/tiny_llama";
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy(golden / name, folder_ / name);
    }
  }

  [[nodiscard]] std::string path() const { return folder_.path().string(); }
  [[nodiscard]] std::filesystem::path weights() const { return folder_ / "model.safetensors"; }

 private:
  void write_config(const ModelConfig& config, int64_t window) const {
    const nlohmann::json object{{"model_type", "llama"},
                                {"hidden_size", config.hidden_size},
                                {"intermediate_size", config.intermediate_size},
                                {"num_hidden_layers", config.layers},
                                {"num_attention_heads", config.q_heads},
                                {"num_key_value_heads", config.kv_heads},
                                {"head_dim", config.head_dim},
                                {"vocab_size", config.vocab_size},
                                {"max_position_embeddings", window},
                                {"rms_norm_eps", config.rms_norm_eps},
                                {"rope_theta", config.rope_theta},
                                {"tie_word_embeddings", true},
                                {"hidden_act", "silu"},
                                {"torch_dtype", "float32"}};
    std::ofstream(folder_ / "config.json") << object.dump();
  }

  ScratchFolder folder_;
};

}  // namespace kvarena::testing
