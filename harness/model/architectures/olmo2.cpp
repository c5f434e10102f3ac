// OLMo 2: norms behind attention and feed-forward in place of those before them, and of all queries and all keys of a
// token together (arXiv:2501.00656, section 2).

#include <array>

#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr std::array kRenamed = {NamePair{"post_attention_norm", "post_attention_layernorm"},
                                 NamePair{"post_ffw_norm", "post_feedforward_layernorm"}};

void set_features(ModelConfig& config) {
  config.qk_norm = config.qk_norm_whole = true;
  config.input_norms = false;
  config.output_norms = true;
}

void read(const JsonSection& root, ModelConfig& config) {
  set_features(config);
  read_attention_biases(root, false, config);
}

void read_gguf(const GgufFile& /*file*/, const std::string& /*prefix*/, ModelConfig& config) { set_features(config); }

}  // namespace

const Architecture kOlmo2{.name = "olmo2",
                          .gguf = "olmo2",
                          .read = read,
                          .read_gguf = read_gguf,
                          .tensors = {.attention_out_norm = "post_attention_layernorm.weight",
                                      .mlp_out_norm = "post_feedforward_layernorm.weight"},
                          .renamed = kRenamed};

}  // namespace kvarena
