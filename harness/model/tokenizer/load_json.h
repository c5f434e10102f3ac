#pragma once
// The parts of reading tokenizer.json, shared by the files that do it.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/model/tokenizer/pipeline.h"

namespace kvarena::tokenizer_json {

/// One JSON object of the file with its place for messages: "tokenizer.json: pre_tokenizer.pretokenizers[0]".
struct Component {
  const nlohmann::json& json;
  std::string place;

  [[nodiscard]] bool has(const char* key) const { return json.contains(key) && !json.at(key).is_null(); }
  [[nodiscard]] std::string type() const { return string("type"); }
  /// Getters throw UserError naming the place when the key is missing or of another type.
  [[nodiscard]] std::string string(const char* key) const;
  [[nodiscard]] bool boolean(const char* key, bool absent) const;
  [[nodiscard]] int64_t integer(const char* key) const;
  [[nodiscard]] Component member(const char* key) const;
  [[nodiscard]] std::vector<Component> list(const char* key) const;
  [[noreturn]] void fail_type(std::string_view expected) const;
};

/// The cutting steps, and whether they make the model's symbols bytes.
struct PreTokenizers {
  std::vector<PreTokenizerPtr> steps;
  bool byte_level = false;
};

[[nodiscard]] NormalizerPtr read_normalizer(const Component& component);
void read_pre_tokenizer(const Component& component, PreTokenizers& out);
[[nodiscard]] Decoder read_decoder(const Component& component);

/// The model's JSON text, its huge members unread. Fills vocabulary, model and special.unknown of `parts`; may add a
/// cutting step that changes nothing but the speed.
void read_model(std::string_view text, const std::string& place, bool byte_level, TokenizerParts& parts);

}  // namespace kvarena::tokenizer_json
