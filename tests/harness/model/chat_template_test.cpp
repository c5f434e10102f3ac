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
    EXPECT_TRUE(covered.contains(name) || name == "plain" || name == "vicuna") << name << " has no golden conversation";
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

TEST(ChatTemplate, IsNamedAfterWhatItWrites) {
  const std::string chatml =
      "{%- for m in messages -%}\n{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
      "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";
  EXPECT_EQ(ChatTemplate::from_text(chatml, "", "").name(), "chatml");
  EXPECT_EQ(ChatTemplate::from_text("{{ '### Instruction:' + messages[0].content }}", "", "").name(), "custom");
  EXPECT_EQ(ChatTemplate::from_text("{{ messages | shout }}", "", "").name(), "custom");  // until it is rendered
  EXPECT_EQ(ChatTemplate::from_text("{{ messages ", "", "").name(), "unknown");
  EXPECT_EQ(ChatTemplate::from_text("", "", "").name(), "none");
}

TEST(ChatTemplate, GivesItsProgramMoreNames) {
  const auto chat = ChatTemplate::named("qwen3", "", "");
  const std::vector<ChatMessage> hello = {{"user", "Hi"}};
  const std::string open = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(chat.render(hello, true), open);
  EXPECT_EQ(chat.with({{"enable_thinking", true}}).render(hello, true), open);
  EXPECT_EQ(chat.with({{"enable_thinking", false}}).render(hello, true), open + "<think>\n\n</think>\n\n");
  const auto tools = ChatTemplate::from_text("{{ tools | tojson }}{{ messages[0].name }}", "", "");
  EXPECT_EQ(
      tools.with({{"tools", jinja::Value::of_json("[1]")}}).render(jinja::Value::of_json(R"([{"name": "n"}])"), true),
      "[1]n");
  EXPECT_EQ(tools.render(hello, true), "null");
}

TEST(ChatTemplate, KnowsTheMarksAroundThinking) {
  EXPECT_EQ(ChatTemplate::named("qwen3", "", "").thinking()->close, "</think>");
  EXPECT_EQ(ChatTemplate::from_text("{{ '[THINK]' + messages[0].content + '[/THINK]' }}", "", "").thinking()->open,
            "[THINK]");
  EXPECT_FALSE(ChatTemplate::named("llama3", "", "").thinking().has_value());
}

/// FastChat's template vicuna_v1.1.
TEST(ChatTemplate, VicunaWritesWhatLongChatWasTrainedOn) {
  const auto chat = ChatTemplate::named("vicuna", "<s>", "</s>");
  EXPECT_EQ(chat.render(std::vector<ChatMessage>{{"user", "Hi"}, {"assistant", "Yo"}, {"user", "?"}}, true),
            "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
            "detailed, and polite answers to the user's questions. USER: Hi ASSISTANT: Yo</s>USER: ? ASSISTANT:");
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
  expect_refused(ChatTemplate::from_text("{{ 'Q:' + m ", "", ""), {{"user", "x"}}, "that is not understood: chat");
  expect_refused(ChatTemplate::named("chatml", "", ""), {}, "messages");
  expect_refused(ChatTemplate::named("llama2", "", ""), {{"assistant", "x"}}, "role \"assistant\"");
  expect_refused(ChatTemplate::named("mistral", "", ""), {{"system", "s"}, {"user", "x"}}, "role \"system\"");
  expect_refused(ChatTemplate::named("mistral_v7", "", ""), {{"user", "x"}}, "no system message");
  expect_refused(ChatTemplate::named("gemma3", "", ""), {{"user", "x"}, {"user", "y"}}, "role \"user\"");
  try {
    (void)ChatTemplate::named("llama-3", "", "");
    FAIL() << "an unknown name was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"llama3\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvarena
