#pragma once
// A config's model entry as something that turns samples into requests and requests into answers.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "datasets/token_counter.h"
#include "harness/engine/model_facts.h"
#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/request.h"
#include "harness/evaluate/server_process.h"
#include "harness/experiment/config.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"

namespace kvarena {
class TransformersEngine;
}

namespace kvarena::evaluate {

/// The tokenizer as data sets use it.
class ModelTokens final : public datasets::TokenCounter {
 public:
  explicit ModelTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    return tokenizer_->encode(text, {.add_special = false});
  }
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const override { return tokenizer_->decode(ids); }
  [[nodiscard]] int64_t leading_special_tokens() const override;

 private:
  const Tokenizer* tokenizer_;
};

/// Headers and vocabulary are read at once, weights when transformer() is first called.
class LoadedModel {
 public:
  /// `home` is the cache folder that relative model paths start from. Throws UserError when the model is absent, with
  /// the way to get it. `machine`: memory behind the device.
  LoadedModel(const experiment::ModelEntry& entry, const std::filesystem::path& home,
              std::shared_ptr<const storage::Hierarchy> machine);
  ~LoadedModel();

  [[nodiscard]] const ModelConfig& config() const { return opened_.config; }
  [[nodiscard]] const OpenedModel& opened() const { return opened_; }
  [[nodiscard]] const datasets::TokenCounter& tokens() const { return tokens_; }
  [[nodiscard]] const ChatTemplate& chat_template() const { return template_; }
  /// Number types of the weights and of the cache.
  [[nodiscard]] TransformerOptions options() const;
  [[nodiscard]] Transformer& transformer();
  /// The engine that computes instead of transformer(); null where that does, and of a model behind an endpoint.
  [[nodiscard]] TransformersEngine* elsewhere() { return elsewhere_.get(); }
  /// The server of a method's entry, asked for its version once. One that the entry says how to start is started, and
  /// ends when another is. Throws UserError where it does not answer.
  [[nodiscard]] CompletionEndpoint& server(const experiment::ComponentEntry& method);
  /// Facts about a server, which then need not be up: its engine's version, and how its chat template's rendering of a
  /// conversation compares with ours.
  struct ServerFacts {
    std::string version;
    std::string chat_template;
  };
  [[nodiscard]] const ServerFacts& server_facts(const experiment::ComponentEntry& method);
  /// Facts that methods may know of the model; valid as long as this object. Null where another engine computes.
  [[nodiscard]] std::shared_ptr<const ModelFacts> facts();

  /// Whether prompt and answer fit the window.
  [[nodiscard]] bool fits(const datasets::Sample& sample, const experiment::EngineSettings& engine,
                          experiment::Question question) const;

  /// The sample as a request, with template, answer prefix, stop rule and facts(). What methods do not compress is
  /// tokenised apart from what is before it, as kvpress does, and each turn apart from the others: no token has a part
  /// in both. With `tokens` the prompt is
  /// brought to their length. Throws UserError when prompt and answer do not fit the window, and when the question is
  /// to be unseen and the rendered prompt does not tell where it starts.
  [[nodiscard]] Request request(const datasets::Sample& sample, const experiment::EngineSettings& engine,
                                std::vector<std::string> metrics,
                                experiment::Question question = experiment::Question::seen,
                                const std::optional<experiment::RequestTokens>& tokens = {});

 private:
  /// The sample as text, with template and answer prefix.
  [[nodiscard]] std::string render(const datasets::Sample& sample) const;
  /// "as ours", or how the server's rendering of a conversation differs.
  [[nodiscard]] std::string compare_templates(const CompletionEndpoint& server) const;
  /// Whether the model's chat template is put around the sample's messages.
  [[nodiscard]] bool templated(const datasets::Sample& sample) const;

  experiment::ModelEntry entry_;
  OpenedModel opened_;
  ChatTemplate template_;
  ModelTokens tokens_;
  std::filesystem::path fitted_folder_;
  std::shared_ptr<const storage::Hierarchy> machine_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<TransformersEngine> elsewhere_;
  std::filesystem::path home_;
  std::map<std::string, std::unique_ptr<CompletionEndpoint>> servers_;  // by method's label, as the next
  std::map<std::string, ServerFacts> server_facts_;
  std::shared_ptr<RequestPace> pace_;  // of requests to them; may be null
  std::unique_ptr<ServerProcess> started_;
  std::string started_for_;  // label of a method
  std::shared_ptr<const ModelFacts> facts_;
};

}  // namespace kvarena::evaluate
