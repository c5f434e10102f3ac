#pragma once
// One loaded model under several methods, by the names that clients call.

#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/engine/reuse/priming.h"
#include "harness/method/method.h"
#include "harness/model/chat_template.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::serve {

struct ServedModel {
  std::string name;         // "smollm2-135m", "smollm2-135m@NAME:key=value"
  std::string method_json;  // settings; empty for full KV
  std::unique_ptr<const Method> method;
  std::shared_ptr<ReuseMemory> memory;  // of a method that reuses entries: what its requests leave for later ones
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
  /// The plain name answers with everything kept. A method that reuses entries keeps at most `reuse_bytes` of them.
  explicit ServedModels(std::string name, int64_t reuse_bytes = std::numeric_limits<int64_t>::max());
  /// Adds "NAME@written" for a method. Throws UserError for one that is there already and one that cannot be served.
  void add(const std::string& written, std::string method_json, std::unique_ptr<const Method> method);
  /// Opens the checkpoints that methods use beside the model, which was read from `file`, so that no request waits for
  /// it. Throws UserError as Transformer::helper() does.
  void open_helpers(Transformer& model, const std::string& file) const;

  /// Throws ApiError (404) naming the nearest.
  [[nodiscard]] const ServedModel& find(const std::string& name) const;
  [[nodiscard]] const std::vector<ServedModel>& all() const { return models_; }

 private:
  std::vector<ServedModel> models_;
  int64_t reuse_bytes_;
};

}  // namespace kvarena::serve
