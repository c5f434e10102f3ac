// Chat templates against the Jinja programs of the checkpoints, run by transformers.

#include "harness/model/chat_template.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::vector<ChatMessage> messages_of(const json& line) {
  std::vector<ChatMessage> messages;
  for (const json& message : line["messages"]) messages.push_back({message["role"], message["content"]});
  return messages;
}

/// The Jinja texts that are at hand, by the names of the golden file.
std::map<std::string, std::string> jinja_texts() {
  std::map<std::string, std::string> texts;
  if (std::filesystem::exists(testing::smollm2_file())) {
    texts["smollm2"] = GgufFile(testing::smollm2_file()).get_string("tokenizer.chat_template");
  }
  const std::map<std::string, std::string> folders = {
      {"qwen3", "qwen3"}, {"deepseek_v3", "deepseek_v3"}, {"llama3_shared", "llama3"}};
  for (const auto& [name, folder] : folders) {
    const auto file = testing::shared_tokenizers() / folder / "tokenizer_config.json";
    if (std::filesystem::exists(file)) texts[name] = json::parse(read_file(file))["chat_template"];
  }
  return texts;
}

TEST(ChatTemplate, ChosenByNameWritesWhatTheCheckpointsProgramWrites) {
  std::set<std::string> covered;
  for (const json& line : testing::read_jsonl(testing::golden_file("chat.jsonl"))) {
    if (line.contains("made_by") || line["template"] == "llama3_shared") continue;
    const auto chat = ChatTemplate::named(line["template"].get<std::string>(), line["bos"], line["eos"]);
    EXPECT_EQ(chat.render(messages_of(line), line["add_generation_prompt"]), line["text"].get<std::string>()) << line;
    covered.insert(chat.name());
  }
  for (const std::string& name : ChatTemplate::names()) {
    EXPECT_TRUE(covered.contains(name) || name == "plain") << name << " has no golden conversation";
  }
}

TEST(ChatTemplate, RecognisedFromItsJinjaTextWritesTheSame) {
  const std::map<std::string, std::string> texts = jinja_texts();
  if (texts.empty()) GTEST_SKIP() << "neither the default model nor " << testing::shared_tokenizers();
  for (const json& line : testing::read_jsonl(testing::golden_file("chat.jsonl"))) {
    if (line.contains("made_by") || !texts.contains(line["template"])) continue;
    const auto name = line["template"].get<std::string>();
    const auto chat = ChatTemplate::from_text(texts.at(name), line["bos"], line["eos"]);
    EXPECT_EQ(chat.name(), name == "llama3_shared" ? "llama3" : name);
    EXPECT_EQ(chat.hash(), line["sha256"].get<std::string>());
    EXPECT_EQ(chat.render(messages_of(line), line["add_generation_prompt"]), line["text"].get<std::string>()) << line;
  }
}

/// Each text writes the marks of its family, in words of our own.
TEST(ChatTemplate, FamiliesAreToldApartByTheMarksTheyWrite) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>'}}", "chatml"},
      {"{{'<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n'}}"
       "<tool_response>",
       "qwen2.5"},
      {"{{'<|im_start|>system\\nYou are Bob.<|im_end|>\\n'}}", "custom"},
      {"add_generation_prompt {{'<|start_header_id|>' + m.role}}", "llama3"},
      {"add_generation_prompt <|start_header_id|> Cutting Knowledge Date: December 2023", "llama3.1"},
      {"{{bos_token + '[INST] <<SYS>>'}}", "llama2"},
      {"{{'[INST] ' + m.content + ' [/INST]'}}", "mistral"},
      {"system_message {{\"[INST] \" + m.content + \"[/INST]\"}} {{\" \" + message[\"content\"]|trim + eos_token}}",
       "mistral_v3"},
      {"{{'[SYSTEM_PROMPT]' + s + '[/SYSTEM_PROMPT]'}}{{'[INST]'}}", "mistral_v7"},
      {"{{'<｜User｜>' + m.content}}", "deepseek_v3"},
      {"{{'<｜User｜>' + m.content}}split('</think>'){{'<｜Assistant｜><think>\\n'}}", "deepseek_r1"},
      {"{{'User: ' + m.content}}", "deepseek_v2"},
      {"{{'<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '')}}", "gemma3"},
      {"{{'<start_of_turn>' + role + '\\n' + message['content'] | trim}}", "unknown"},  // Gemma 2 has no system role
      {"{{ '### Instruction:' + m.content }}", "unknown"},
      {"", "none"},
  };
  for (const auto& [text, name] : cases) EXPECT_EQ(ChatTemplate::from_text(text, "", "").name(), name) << text;
}

TEST(ChatTemplate, KeepsTheDefaultPromptOfAFamilyMember) {
  const auto chat = ChatTemplate::from_text("{{'<|im_start|>system\nYou are Bob.<|im_end|>\n'}}", "", "");
  EXPECT_EQ(chat.default_system(), "You are Bob.");
  const std::vector<ChatMessage> hello = {{"user", "Hi"}};
  EXPECT_EQ(chat.render(hello, true),
            "<|im_start|>system\nYou are Bob.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

void expect_refused(const ChatTemplate& chat, const std::vector<ChatMessage>& messages, const std::string& word) {
  try {
    (void)chat.render(messages, true);
    FAIL() << "rendered, though " << word;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(ChatTemplate, RefusesWhatItCannotRenderAndSaysWhy) {
  expect_refused(ChatTemplate(), {{"user", "x"}}, "choose one with \"template\"");
  expect_refused(ChatTemplate::from_text("{{ 'Q:' + m }}", "", ""), {{"user", "x"}}, "of no known family");
  expect_refused(ChatTemplate::named("chatml", "", ""), {}, "messages");
  expect_refused(ChatTemplate::named("llama2", "", ""), {{"assistant", "x"}}, "messages[0].role");
  expect_refused(ChatTemplate::named("mistral", "", ""), {{"system", "s"}, {"user", "x"}}, "messages[0].role");
  expect_refused(ChatTemplate::named("mistral_v7", "", ""), {{"user", "x"}}, "system");
  expect_refused(ChatTemplate::named("gemma3", "", ""), {{"user", "x"}, {"user", "y"}}, "messages[1].role");
  try {
    (void)ChatTemplate::named("llama-3", "", "");
    FAIL() << "an unknown name was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"llama3\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvarena
