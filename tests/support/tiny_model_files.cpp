#include "tests/support/tiny_model_files.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/model/safetensors.h"

namespace kvarena::testing {

void write_weights(const std::filesystem::path& file, const RandomCheckpoint& checkpoint) {
  std::vector<std::vector<float>> numbers;
  std::vector<TensorToWrite> tensors;
  for (const TensorInfo& info : checkpoint.tensors()) {
    numbers.emplace_back(static_cast<size_t>(info.elements()));
    checkpoint.read_f32(info.name, numbers.back());
    tensors.push_back({.name = info.name, .shape = info.shape, .values = numbers.back()});
  }
  write_safetensors(file, tensors, {});
}

void write_tiny_model(const std::filesystem::path& folder, uint64_t seed, int64_t layers) {
  using nlohmann::json;
  std::filesystem::create_directories(folder);
  ModelConfig config = tiny_config();
  config.layers = layers;
  std::ofstream(folder / "config.json") << json{{"model_type", "llama"},
                                                {"architectures", {"LlamaForCausalLM"}},
                                                {"num_hidden_layers", config.layers},
                                                {"hidden_size", config.hidden_size},
                                                {"num_attention_heads", config.q_heads},
                                                {"num_key_value_heads", config.kv_heads},
                                                {"head_dim", config.head_dim},
                                                {"intermediate_size", config.intermediate_size},
                                                {"vocab_size", config.vocab_size},
                                                {"max_position_embeddings", config.max_position},
                                                {"rms_norm_eps", config.rms_norm_eps},
                                                {"rope_theta", config.rope_theta},
                                                {"tie_word_embeddings", true},
                                                {"hidden_act", "silu"}};

  write_weights(folder / "model.safetensors", RandomCheckpoint(llama_tensors(config), seed));

  json vocabulary;
  for (int64_t id = 0; id < config.vocab_size; ++id) {  // one character a token, from '!' on, then Latin-1 letters
    const auto code = static_cast<uint32_t>(id < 94 ? '!' + id : 0xC0 + (id - 94));
    std::string character;
    if (code < 0x80) {
      character += static_cast<char>(code);
    } else {
      character += static_cast<char>(0xC0 | (code >> 6));
      character += static_cast<char>(0x80 | (code & 0x3F));
    }
    vocabulary[character] = id;
  }
  std::ofstream(folder / "tokenizer.json")
      << json{{"version", "1.0"},
              {"added_tokens", json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer",
               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
              {"post_processor", nullptr},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
}

}  // namespace kvarena::testing
