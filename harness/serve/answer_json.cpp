#include "harness/serve/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/serve/tool_calls.h"

namespace kvarena::serve {
namespace {

using nlohmann::json;

/// A token's text, as "bytes:\xNN" where its bytes are no whole characters.
std::string token_name(const Tokenizer& tokenizer, int32_t token) {
  if (token >= tokenizer.vocab_size()) return fmt::format("<{}>", token);  // a padded row of the weights
  const std::string bytes = tokenizer.token_bytes(token, /*first=*/false);
  if (bytes.empty()) return tokenizer.token_text(token);
  try {
    (void)json(bytes).dump();
    return bytes;
  } catch (const json::type_error&) {
    std::string name = "bytes:";
    for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return name;
  }
}

/// A token as log-probabilities name it: by its id where that is asked for, for texts of tokens may be alike.
std::string shown_name(const AnswerHead& head, const Tokenizer& tokenizer, int32_t token) {
  return head.named_by_id ? fmt::format("token_id:{}", token) : token_name(tokenizer, token);
}

int64_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

/// The form of completions: four lists.
json logprobs_json(const AnswerHead& head, const Piece& piece, const Tokenizer& tokenizer) {
  json tokens = json::array(), values = json::array(), tops = json::array(), offsets = json::array();
  int64_t offset = 0;
  for (const ScoredToken& scored : piece.tokens) {
    tokens.push_back(shown_name(head, tokenizer, scored.token));
    offsets.push_back(offset);
    offset += characters(token_name(tokenizer, scored.token));
    values.push_back(scored.score ? json(scored.score->log_probability) : json());
    json top;
    if (scored.score) {
      top = json::object();
      for (const auto& [token, value] : scored.score->likeliest) top[shown_name(head, tokenizer, token)] = value;
    }
    tops.push_back(std::move(top));
  }
  json object = json::object();
  object["tokens"] = std::move(tokens);
  object["token_logprobs"] = std::move(values);
  object["top_logprobs"] = std::move(tops);
  object["text_offset"] = std::move(offsets);
  return object;
}

json chat_token(const AnswerHead& head, const Tokenizer& tokenizer, int32_t token, double value) {
  json bytes = json::array();
  const std::string text = token < tokenizer.vocab_size() ? tokenizer.token_bytes(token, false) : "";
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  json object = json::object();
  object["token"] = shown_name(head, tokenizer, token);
  object["logprob"] = value;
  object["bytes"] = std::move(bytes);
  return object;
}

/// The form of chats: a list of tokens.
json chat_logprobs_json(const AnswerHead& head, const Piece& piece, const Tokenizer& tokenizer) {
  json content = json::array();
  for (const ScoredToken& scored : piece.tokens) {
    json token = chat_token(head, tokenizer, scored.token, scored.score->log_probability);
    token["top_logprobs"] = json::array();
    for (const auto& [id, value] : scored.score->likeliest) {
      token["top_logprobs"].push_back(chat_token(head, tokenizer, id, value));
    }
    content.push_back(std::move(token));
  }
  return json{{"content", std::move(content)}};
}

json scores_json(const AnswerHead& head, const Piece& piece, const Tokenizer& tokenizer) {
  if (piece.tokens.empty()) return nullptr;
  return head.chat ? chat_logprobs_json(head, piece, tokenizer) : logprobs_json(head, piece, tokenizer);
}

json head_json(const AnswerHead& head, const char* object) {
  json result = json::object();
  result["id"] = head.id;
  result["object"] = object;
  result["created"] = head.created;
  result["model"] = head.model;
  return result;
}

const char* chunk_object(const AnswerHead& head) { return head.chat ? "chat.completion.chunk" : "text_completion"; }

/// Writes a chat's text into a choice, and the calls in it, which end the choice by another reason.
void put_text(const AnswerHead& head, const std::string& text, bool streams, json& message, json& finish_reason) {
  message["content"] = text;
  if (!head.tools) return;
  ToolCalls calls = find_tool_calls(text, head.id);
  if (calls.list.empty()) return;
  message["content"] = calls.text.empty() ? json() : json(calls.text);
  for (size_t i = 0; streams && i < calls.list.size(); ++i) calls.list[i]["index"] = i;
  message["tool_calls"] = std::move(calls.list);
  finish_reason = "tool_calls";
}

}  // namespace

json usage_json(std::span<const Choice> choices) {
  int64_t prompt = 0, answer = 0, cached = 0, resident = 0, peak = 0;
  for (const Choice& choice : choices) {
    const ServedAnswer& served = choice.ending()->answer;
    prompt += choice.prompt_tokens();
    answer += choice.answer_tokens();
    cached += served.activity.tokens_reused;
    resident += served.resident_bytes;
    peak += served.peak_bytes;
  }
  json usage = json::object();
  usage["prompt_tokens"] = prompt;
  usage["completion_tokens"] = answer;
  usage["total_tokens"] = prompt + answer;
  usage["prompt_tokens_details"]["cached_tokens"] = cached;
  usage["kvarena"]["resident_bytes"] = resident;
  usage["kvarena"]["peak_bytes"] = peak;
  return usage;
}

json answer_json(const AnswerHead& head, std::span<const Choice> choices, std::span<const Piece> pieces,
                 const Tokenizer& tokenizer) {
  json list = json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    json one = json::object();
    one["index"] = i;
    one["finish_reason"] = choices[i].finish_reason();
    if (head.chat) {
      one["message"]["role"] = "assistant";
      put_text(head, pieces[i].text, /*streams=*/false, one["message"], one["finish_reason"]);
    } else {
      one["text"] = pieces[i].text;
    }
    one["logprobs"] = scores_json(head, pieces[i], tokenizer);
    if (head.token_ids) one["token_ids"] = pieces[i].answer_ids;
    list.push_back(std::move(one));
  }
  json result = head_json(head, head.chat ? "chat.completion" : "text_completion");
  result["choices"] = std::move(list);
  result["usage"] = usage_json(choices);
  return result;
}

json chunk_json(const AnswerHead& head, const Choice& choice, const Piece& piece, bool first,
                const Tokenizer& tokenizer) {
  json one = json::object();
  one["index"] = 0;
  one["finish_reason"] = choice.ending() ? json(choice.finish_reason()) : json();
  if (head.chat) {
    one["delta"] = json::object();
    if (first) one["delta"]["role"] = "assistant";
    if (first || !piece.text.empty()) put_text(head, piece.text, /*streams=*/true, one["delta"], one["finish_reason"]);
  } else {
    one["text"] = piece.text;
  }
  one["logprobs"] = scores_json(head, piece, tokenizer);
  if (head.token_ids) one["token_ids"] = piece.answer_ids;
  json result = head_json(head, chunk_object(head));
  result["choices"] = json::array();
  result["choices"].push_back(std::move(one));
  return result;
}

json usage_chunk_json(const AnswerHead& head, const Choice& choice) {
  json result = head_json(head, chunk_object(head));
  result["choices"] = json::array();
  result["usage"] = usage_json({&choice, 1});
  return result;
}

json model_json(const ServedModel& model, int64_t created) {
  json object = json::object();
  object["id"] = model.name;
  object["object"] = "model";
  object["created"] = created;
  object["owned_by"] = "kvarena";
  object["kvarena"]["method"] = model.method_json.empty() ? json() : json::parse(model.method_json);
  return object;
}

json models_json(std::span<const ServedModel> models, int64_t created) {
  json list = json::array();
  for (const ServedModel& model : models) list.push_back(model_json(model, created));
  json object = json::object();
  object["object"] = "list";
  object["data"] = std::move(list);
  return object;
}

}  // namespace kvarena::serve
