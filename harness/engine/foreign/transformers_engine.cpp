#include "harness/engine/foreign/transformers_engine.h"

#include <ATen/ATen.h>

#include "harness/core/own_files.h"
#include "harness/method/python/child.h"

namespace kvarena {

using nlohmann::json;

namespace {

at::Tensor token_tensor(std::optional<int32_t> token) {
  at::Tensor answer = at::empty({token ? 1 : 0}, at::kLong);
  if (token) answer.data_ptr<int64_t>()[0] = *token;
  return answer;
}

/// Positions where the mask [layers, kv_heads, n] is not 0.
std::vector<std::vector<std::vector<int32_t>>> positions_of(const at::Tensor& mask) {
  std::vector<std::vector<std::vector<int32_t>>> layers;
  for (int64_t layer = 0; layer < mask.size(0); ++layer) {
    auto& heads = layers.emplace_back();
    for (int64_t head = 0; head < mask.size(1); ++head) {
      auto& positions = heads.emplace_back();
      const at::Tensor row = mask[layer][head];
      for (int32_t i = 0; i < row.size(0); ++i) {
        if (row.const_data_ptr<float>()[i] != 0) positions.push_back(i);
      }
    }
  }
  return layers;
}

}  // namespace

TransformersEngine::TransformersEngine(const std::filesystem::path& checkpoint, const std::string& dtype,
                                       const std::string& device)
    : child_(std::make_unique<PythonChild>(own_file("plugins/engine.py"))),
      settings_{{"model", checkpoint.string()}, {"dtype", dtype}, {"device", device}} {}

TransformersEngine::~TransformersEngine() = default;

const std::string& TransformersEngine::version() {
  if (version_.empty()) version_ = child_->methods().at("version").get<std::string>();
  return version_;
}

json TransformersEngine::message(const char* verb) const { return {{verb, "transformers"}, {"settings", settings_}}; }

void TransformersEngine::load(int64_t threads) {
  settings_["threads"] = threads;
  (void)child_->ask(message("make"));
}

ForeignOutcome TransformersEngine::answer(const ForeignRequest& request, const Next& next) {
  json asked = message("answer");
  asked["prompt"] = request.prompt;
  asked["question"] = request.question;
  asked["method"] = request.method;
  asked["chunk"] = request.chunk;
  asked["kept"] = request.kept;
  const json told = child_->ask(asked, [&](const json& wish) {
    const at::Tensor row = child_->written(wish.at("argument"));
    return token_tensor(next({row.const_data_ptr<float>(), static_cast<size_t>(row.numel())}));
  });
  ForeignOutcome outcome{.bytes = told.at("bytes").get<int64_t>(),
                         .dropped = told.at("dropped").get<int64_t>(),
                         .acted = told.at("acted").get<bool>(),
                         .read_seconds = told.at("read_seconds").get<double>(),
                         .decode_seconds = told.at("decode_seconds").get<double>(),
                         .kept = {}};
  if (told.contains("kept")) outcome.kept = positions_of(child_->written(told["kept"]));
  return outcome;
}

}  // namespace kvarena
