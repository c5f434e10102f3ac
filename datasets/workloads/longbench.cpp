// LongBench (THUDM/LongBench @2e00731f) and LongBench-E: official rows, official prompts, official settings. One table:
// 21 tasks, 13 of them also in the E set, whose files hold other rows of the same form. Twelve come by turns, too, as
// the contexts of one store.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "datasets/prompt.h"
#include "datasets/records.h"
#include "datasets/row_source.h"
#include "datasets/workload.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* kind;
  const char* language;
  const char* metric;
  int64_t max_new_tokens;
  bool chat_template;    // off for completion-style tasks, as in the official build_chat
  bool first_line_only;  // the scorer cuts the prediction to its first line
  int64_t rows_e;        // rows of its LongBench-E file; 0 = it has none
  int64_t rows;
  const char* prompt;  // {context} and {input} are replaced; config/dataset2prompt.json
};

// The typing error "asconcisely" is the official prompt's.
constexpr Task kTasks[] = {
    {"narrativeqa", "single-document QA", "en", "qa_f1", 128, true, false, 0, 200,
     "You are given a story, which can be either a novel or a movie script, and a question. Answer the "
     "question asconcisely as you can, using a single phrase if possible. Do not provide any "
     "explanation.\n\n"
     "Story: {context}\n\n"
     "Now, answer the question based on the story asconcisely as you can, using a single phrase if "
     "possible. Do not provide any explanation.\n\n"
     "Question: {input}\n\n"
     "Answer:"},
    {"qasper", "single-document QA", "en", "qa_f1", 128, true, false, 224, 200,
     "You are given a scientific article and a question. Answer the question as concisely as you can, "
     "using a single phrase or sentence if possible. If the question cannot be answered based on the "
     "information in the article, write \"unanswerable\". If the question is a yes/no question, answer "
     "\"yes\", \"no\", or \"unanswerable\". Do not provide any explanation.\n\n"
     "Article: {context}\n\n"
     " Answer the question based on the above article as concisely as you can, using a single phrase or "
     "sentence if possible. If the question cannot be answered based on the information in the article, "
     "write \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or "
     "\"unanswerable\". Do not provide any explanation.\n\n"
     "Question: {input}\n\n"
     "Answer:"},
    {"multifieldqa_en", "single-document QA", "en", "qa_f1", 64, true, false, 150, 150,
     "Read the following text and answer briefly.\n\n"
     "{context}\n\n"
     "Now, answer the following question based on the above text, only give me the answer and do not "
     "output any other words.\n\n"
     "Question: {input}\n"
     "Answer:"},
    {"multifieldqa_zh", "single-document QA", "zh", "qa_f1_zh", 64, true, false, 0, 200,
     "阅读以下文字并用中文简短回答：\n\n"
     "{context}\n\n"
     "现在请基于上面的文章回答下面的问题，只告诉我答案，不要输出任何其他字词。\n\n"
     "问题：{input}\n"
     "回答："},
    {"hotpotqa", "multi-document QA", "en", "qa_f1", 32, true, false, 300, 200,
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "The following are given passages.\n"
     "{context}\n\n"
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "Question: {input}\n"
     "Answer:"},
    {"2wikimqa", "multi-document QA", "en", "qa_f1", 32, true, false, 300, 200,
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "The following are given passages.\n"
     "{context}\n\n"
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "Question: {input}\n"
     "Answer:"},
    {"musique", "multi-document QA", "en", "qa_f1", 32, true, false, 0, 200,
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "The following are given passages.\n"
     "{context}\n\n"
     "Answer the question based on the given passages. Only give me the answer and do not output any "
     "other words.\n\n"
     "Question: {input}\n"
     "Answer:"},
    {"dureader", "multi-document QA", "zh", "rouge_l_zh", 128, true, false, 0, 200,
     "请基于给定的文章回答下述问题。\n\n"
     "文章：{context}\n\n"
     "请基于上述文章回答下面的问题。\n\n"
     "问题：{input}\n"
     "回答："},
    {"gov_report", "summary", "en", "rouge_l", 512, true, false, 300, 200,
     "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
     "Report:\n"
     "{context}\n\n"
     "Now, write a one-page summary of the report.\n\n"
     "Summary:"},
    {"qmsum", "summary", "en", "rouge_l", 512, true, false, 0, 200,
     "You are given a meeting transcript and a query containing a question or instruction. Answer the "
     "query in one or more sentences.\n\n"
     "Transcript:\n"
     "{context}\n\n"
     "Now, answer the query based on the above meeting transcript in one or more sentences.\n\n"
     "Query: {input}\n"
     "Answer:"},
    {"multi_news", "summary", "en", "rouge_l", 512, true, false, 294, 200,
     "You are given several news passages. Write a one-page summary of all news. \n\n"
     "News:\n"
     "{context}\n\n"
     "Now, write a one-page summary of all the news.\n\n"
     "Summary:"},
    {"vcsum", "summary", "zh", "rouge_l_zh", 512, true, false, 0, 200,
     "下面有一段会议记录，请你阅读后，写一段总结，总结会议的内容。\n"
     "会议记录：\n"
     "{context}\n\n"
     "会议总结："},
    {"trec", "few-shot", "en", "classification", 64, false, true, 300, 200,
     "Please determine the type of the question below. Here are some examples of questions.\n\n"
     "{context}\n"
     "{input}"},
    {"triviaqa", "few-shot", "en", "qa_f1", 32, false, true, 300, 200,
     "Answer the question based on the given passage. Only give me the answer and do not output any other "
     "words. The following are some examples.\n\n"
     "{context}\n\n"
     "{input}"},
    {"samsum", "few-shot", "en", "rouge_l", 128, false, true, 300, 200,
     "Summarize the dialogue into a few short sentences. The following are some examples.\n\n"
     "{context}\n\n"
     "{input}"},
    {"lsht", "few-shot", "zh", "classification", 64, false, true, 0, 200,
     "请判断给定新闻的类别，下面是一些例子。\n\n"
     "{context}\n"
     "{input}"},
    {"passage_count", "synthetic", "en", "count", 32, true, false, 300, 200,
     "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please "
     "carefully read these paragraphs and determine how many unique paragraphs there are after removing "
     "duplicates. In other words, how many non-repeating paragraphs are there in total?\n\n"
     "{context}\n\n"
     "Please enter the final count of unique paragraphs after removing duplicates. The output format "
     "should only contain the number, such as 1, 2, 3, and so on.\n\n"
     "The final answer is: "},
    {"passage_retrieval_en", "synthetic", "en", "retrieval", 32, true, false, 300, 200,
     "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the "
     "abstract is from.\n\n"
     "{context}\n\n"
     "The following is an abstract.\n\n"
     "{input}\n\n"
     "Please enter the number of the paragraph that the abstract is from. The answer format must be like "
     "\"Paragraph 1\", \"Paragraph 2\", etc.\n\n"
     "The answer is: "},
    {"passage_retrieval_zh", "synthetic", "zh", "retrieval_zh", 32, true, false, 0, 200,
     "以下是若干段落文字，以及其中一个段落的摘要。请确定给定的摘要出自哪一段。\n\n"
     "{context}\n\n"
     "下面是一个摘要\n\n"
     "{input}\n\n"
     "请输入摘要所属段落的编号。答案格式必须是\"段落1\"，\"段落2\"等格式\n\n"
     "答案是："},
    {"lcc", "code", "code", "code_sim", 64, false, false, 300, 500,
     "Please complete the code given below. \n"
     "{context}Next line of code:\n"},
    {"repobench-p", "code", "code", "code_sim", 64, false, false, 300, 500,
     "Please complete the code given below. \n"
     "{context}{input}Next line of code:\n"},
};

bool fill(const Task& task, const Row& row, const std::string& place, Sample& sample) {
  const std::string context = string_field(row, "context", place);
  const std::string input = string_field(row, "input", place);
  Rendered prompt = render(task.prompt, {{"context", context}, {"input", input}});
  sample.id = string_field(row, "_id", place);
  sample.messages = {{"user", std::move(prompt.text)}};
  sample.question = {0, prompt.question};
  sample.references = strings_field(row, "answers", place);
  nlohmann::json extras = {{"length", integer_field(row, "length", place)},  // words; buckets of LongBench-E
                           {"language", task.language}};
  if (task.first_line_only) extras["first_line_only"] = true;
  if (!any_field(row, "all_classes", place).is_null()) {
    extras["all_classes"] = strings_field(row, "all_classes", place);
  }
  sample.extras = extras.dump();
  return true;
}

class LongBench final : public Workload {
 public:
  explicit LongBench(const Task& task) : task_(task) {}

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), std::bind_front(fill, std::cref(task_)));
  }

 private:
  const Task& task_;
};

WorkloadInfo describe_task(const Task& task, bool e);

const Task& task_named(std::string_view name) { return *std::ranges::find(kTasks, name, &Task::name); }

/// The samples of several tasks by turns; a task that has no more is passed over.
class ByTurns final : public SampleSource {
 public:
  struct Part {
    const Task* task;
    WorkloadInfo info;
    std::unique_ptr<SampleSource> samples;
  };
  explicit ByTurns(std::vector<Part> parts) : parts_(std::move(parts)) {}

  bool next(Sample& sample) override {
    while (!parts_.empty()) {
      if (turn_ >= parts_.size()) turn_ = 0;
      const Part& part = parts_[turn_];
      sample.chat_template = part.info.chat_template;
      sample.generation = part.info.generation;
      if (part.samples->next(sample)) {
        sample.id = fmt::format("{}/{}", part.task->name, sample.id);
        ++turn_;
        return true;
      }
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(turn_));
    }
    return false;
  }

 private:
  std::vector<Part> parts_;
  size_t turn_ = 0;
};

// The twelve tasks whose contexts EvicPress stores (arXiv:2512.14946, table 2).
constexpr std::array kContextTasks = {"2wikimqa",        "gov_report", "hotpotqa",    "multi_news",
                                      "multifieldqa_en", "musique",    "narrativeqa", "qasper",
                                      "qmsum",           "samsum",     "trec",        "triviaqa"};

class LongBenchContexts final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    std::vector<ByTurns::Part> parts;
    for (const char* name : kContextTasks) {
      const Task& task = task_named(name);
      WorkloadInfo info = describe_task(task, false);
      const DataFile file = require_data_file(info, settings.data_dir);
      parts.push_back({&task, std::move(info), make_row_source(file, std::bind_front(fill, std::cref(task)))});
    }
    return std::make_unique<ByTurns>(std::move(parts));
  }
};

WorkloadInfo describe_task(const Task& task, bool e) {
  const std::string name = task.name;
  WorkloadInfo info{
      .name = fmt::format("longbench{}/{}", e ? "-e" : "", name),
      .family = e ? "longbench-e" : "longbench",
      .title = fmt::format("LongBench{} {}: {}, {}", e ? "-E" : "", name, task.kind, task.language),
      .source = "https://huggingface.co/datasets/THUDM/LongBench (data.zip)",
      .download =
          "curl -L -o longbench.zip https://huggingface.co/datasets/THUDM/LongBench/resolve/main/data.zip && "
          "unzip longbench.zip -d $KVARENA_DATA/longbench",
      .licence = "MIT; source corpora as their authors state",
      .metrics = {task.metric},
      .folder = "longbench",
      .files = {fmt::format("{}{}.jsonl", name, e ? "_e" : "")},
      .samples = e ? task.rows_e : task.rows,
      .chat_template = task.chat_template,
      .generation = {.max_new_tokens = task.max_new_tokens},
      .truncation = TruncationRule::middle_halves};
  if (name == "samsum") {  // models go on with the next dialogue
    info.generation.stop_token_of.assign(1, '\n');
    info.generation.min_new_tokens = 1;
  }
  return info;
}

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    WorkloadRegistration(describe_task(task, false), [&task] { return std::make_unique<LongBench>(task); });
    if (task.rows_e > 0) {
      WorkloadRegistration(describe_task(task, true), [&task] { return std::make_unique<LongBench>(task); });
    }
  }
  WorkloadInfo contexts = describe_task(task_named(kContextTasks[0]), false);
  contexts.name = contexts.family = "longbench-contexts";
  contexts.title = "LongBench contexts: twelve English tasks by turns";
  contexts.metrics = {"embedding_similarity"};
  contexts.samples = 0;
  for (const char* name : kContextTasks) contexts.samples += task_named(name).rows;
  WorkloadRegistration(std::move(contexts), [] { return std::make_unique<LongBenchContexts>(); });
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
