#include "harness/engine/model_facts.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "harness/engine/fitted_file.h"
#include "harness/model/rope_frequencies.h"
#include "harness/storage/hierarchy.h"

namespace kvarena {
namespace {

/// Nothing but ASCII punctuation, with or without a blank in front.
bool is_punctuation(std::string_view bytes) {
  if (bytes.starts_with(' ')) bytes.remove_prefix(1);
  return !bytes.empty() &&
         std::ranges::all_of(bytes, [](char c) { return std::ispunct(static_cast<unsigned char>(c)) != 0; });
}

Rotation rotary(const RotaryRequest& request) {
  ModelConfig config;
  config.head_dim = request.head_dim;
  config.rope_theta = request.theta;
  if (request.factor > 1) {
    config.rope_scaling.type = RopeScaling::Type::yarn;
    config.rope_scaling.factor = request.factor;
    config.rope_scaling.original_max_position = request.window;
  }
  const RopeFrequencies rope = rope_frequencies(config);
  return {.inverse = rope.inverse, .magnitude = rope.magnitude};
}

}  // namespace

std::shared_ptr<ModelFacts> model_facts(const Transformer& model, std::vector<std::filesystem::path> fitted_folders,
                                        std::shared_ptr<const storage::Hierarchy> tiers) {
  auto facts = std::make_shared<ModelFacts>();
  facts->name = model.config().name;
  facts->fingerprint = model.fingerprint();
  facts->hidden_size = model.config().hidden_size;
  facts->weight_bytes = model.weight_bytes();
  facts->window = model.config().max_position;
  facts->latent = model.config().is_latent();
  facts->norm_eps = model.config().rms_norm_eps;
  facts->rope_theta = model.config().rope_theta;
  for (int64_t layer = 0; layer < model.config().cached_layers(); ++layer) {
    const bool own = model.config().has_own_rotation(layer);
    facts->has_own_rotation.push_back(own);
    (own ? facts->own_rotation : facts->rotation) = {.inverse = model.rope(layer).inverse,
                                                     .magnitude = model.rope(layer).magnitude};
  }
  const RopeScaling& scaling = model.config().rope_scaling;
  if (scaling.by_length()) facts->rotation_window = scaling.original_max_position;
  facts->searched_keys = [&model](int64_t kv_heads, int64_t head_dim, const LedgerPtr& ledger) {
    auto keys = model.searched_keys(kv_heads, head_dim, ledger);
    return keys != nullptr ? std::move(keys) : searched_rows(kv_heads, head_dim, ledger);
  };
  facts->tiers = tiers ? std::move(tiers) : std::make_shared<const storage::Hierarchy>(storage::usual_tiers());
  facts->rotary = rotary;
  facts->embed = [&model](std::span<const int32_t> tokens, float* rows) { model.embed(tokens, rows); };
  facts->vocab_size = model.config().vocab_size;
  facts->predict = [&model](const float* rows, int64_t count, float* logits) { model.predict(rows, count, logits); };
  fitted_folders.push_back(project_fitted_folder());
  // One thread at a time starts sessions, so that the artifacts read so far need no lock.
  auto read = std::make_shared<std::map<std::string, std::shared_ptr<const FittedWeights>>>();
  facts->fitted = [read, folders = std::move(fitted_folders), name = facts->name,
                   fingerprint = facts->fingerprint](const FittedRequest& request) {
    auto& slot = (*read)[request.stem() + "\n" + request.path];
    if (!slot) slot = std::make_shared<const FittedWeights>(find_fitted(request, name, fingerprint, folders));
    return slot;
  };
  return facts;
}

TextFacts text_facts(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  TextFacts facts;
  facts.encode = [&tokenizer](std::string_view text) { return tokenizer.encode(text, {.add_special = false}); };
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    facts.token_class.push_back(tokenizer.is_special(id)                           ? TokenClass::special
                                : is_punctuation(tokenizer.token_bytes(id, false)) ? TokenClass::punctuation
                                                                                   : TokenClass::plain);
  }
  if (chat_template.name() == "none" || chat_template.name() == "unknown") return facts;
  const std::string user = "the user's words";
  const std::vector<ChatMessage> messages{{.role = "user", .content = user}};
  const std::string text = chat_template.render(messages, /*add_generation_prompt=*/true);
  const size_t at = text.find(user);
  if (at == std::string::npos) return facts;
  facts.before_user = facts.encode(text.substr(0, at));
  facts.after_user = facts.encode(text.substr(at + user.size()));
  return facts;
}

}  // namespace kvarena
