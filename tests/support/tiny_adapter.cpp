#include "tests/support/tiny_adapter.h"

#include <fstream>

#include "harness/model/safetensors.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::testing {

void write_tiny_adapter(const std::filesystem::path& folder, const std::filesystem::path& base, int64_t tokens,
                        const nlohmann::json& changed) {
  constexpr int64_t kRank = 4;
  write_tiny_model(base, 1);
  std::filesystem::create_directories(folder);
  nlohmann::json config = {{"peft_type", "LORA"},
                           {"base_model_name_or_path", base.string()},
                           {"r", kRank},
                           {"lora_alpha", 8},
                           {"bias", "none"}};
  config.update(changed);
  std::ofstream(folder / "adapter_config.json") << config;
  std::vector<std::vector<float>> numbers;
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : llama_tensors(tiny_config())) {
    if (name.find("_proj.") == std::string::npos) continue;
    const std::string stem = name.substr(0, name.size() - std::string(".weight").size());
    for (const auto& [factor, rows, columns] :
         {std::tuple{".lora_A.weight", kRank, shape[1]}, {".lora_B.weight", shape[0], kRank}}) {
      numbers.push_back(drawn_numbers(stem + factor, rows * columns, 0.3));
      tensors.push_back({.name = "base_model.model." + stem + factor, .shape = {rows, columns}, .values = {}});
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].values = numbers[i];
  write_safetensors(folder / "adapter_model.safetensors", tensors, {});
  if (tokens == 0) return;
  const std::vector<float> rows = drawn_numbers("restore_embeddings", tokens * tiny_config().hidden_size, 0.5);
  write_safetensors(folder / "restore_embeddings.safetensors",
                    {{.name = "restore_embeddings", .shape = {tokens, tiny_config().hidden_size}, .values = rows}}, {});
}

}  // namespace kvarena::testing
