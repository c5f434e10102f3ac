#pragma once
// One loaded model under several methods, by the names that clients call.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/method/method.h"
#include "harness/model/chat_template.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::serve {

struct ServedModel {
  std::string name;         // "smollm2-135m", "smollm2-135m@NAME:key=value"
  std::string method_json;  // settings; empty for full KV
  std::unique_ptr<const Method> method;
};

/// The model as text: what it reads, and what ends its answers. Must outlive the server.
struct ModelText {
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
  std::vector<int32_t> stop_tokens;
  int64_t window = 0;      // positions
  int64_t vocab_size = 0;  // of the weights
};

class ServedModels {
 public:
  /// The plain name answers with everything kept.
  explicit ServedModels(std::string name);
  /// Adds "NAME@written" for a method. Throws UserError for one that is there already and one that cannot be served.
  void add(const std::string& written, std::string method_json, std::unique_ptr<const Method> method);

  /// Throws ApiError (404) naming the nearest.
  [[nodiscard]] const ServedModel& find(const std::string& name) const;
  [[nodiscard]] const std::vector<ServedModel>& all() const { return models_; }

 private:
  std::vector<ServedModel> models_;
};

}  // namespace kvarena::serve
