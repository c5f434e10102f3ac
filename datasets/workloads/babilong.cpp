// BABILong (booydar/babilong @7a6efee): facts of bAbI among the sentences of books, and a question about them.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"
#include "datasets/row_source.h"

namespace kvarena::datasets {
namespace {

struct Task {
  const char* name;
  const char* title;
  std::vector<std::string> labels;  // all answers that the task has
  const char* instruction;          // with its examples
};

// babilong/prompts.py, in the order of its template; babilong/metrics.py.
const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"qa1",
       "where a person is",
       {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"},
       "I will give you context with the facts about positions of different persons hidden in some random text "
       "and a question. You need to answer the question based only on the information from the facts. If a person "
       "was in different locations, use the latest location to answer the question.\n"
       "\n<example>\nCharlie went to the hallway. Judith come back to the kitchen. Charlie travelled to balcony. "
       "Where is Charlie?\nAnswer: The most recent location of Charlie is balcony.\n"
       "</example>\n\n<example>\nAlan moved to the garage. Charlie went to the beach. Alan went to the shop. Rouse "
       "travelled to balcony. Where is Alan?\nAnswer: The most recent location of Alan is shop.\n"
       "</example>\n\nAlways return your answer in the following format: The most recent location of ’person’ "
       "is ’location’. Do not write anything else after that.\n\n"},
      {"qa2",
       "where a thing is",
       {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"},
       "I give you context with the facts about locations and actions of different persons hidden in some random "
       "text and a question.You need to answer the question based only on the information from the facts.\n"
       "If a person got an item in the first location and travelled to the second location the item is also in "
       "the second location. If a person dropped an item in the first location and moved to the second location "
       "the item remains in the first location.\n\n<example>\nCharlie went to the kitchen. Charlie got a bottle. "
       "Charlie moved to the balcony. Where is the bottle?\nAnswer: The bottle is in the balcony.\n"
       "</example>\n<example>\nAlan moved to the garage. Alan got a screw driver. Alan moved to the kitchen. Where "
       "is the screw driver?\nAnswer: The screw driver is in the kitchen.\n"
       "</example>\n\nAlways return your answer in the following format: The ’item’ is in ’location’. Do not write "
       "anything else after that.\n\n"},
      {"qa3",
       "where a thing was before",
       {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"},
       "I give you context with the facts about locations and actions of different persons hidden in some random "
       "text and a question. You need to answer the question based only on the information from the facts.\n"
       "If a person got an item in the first location and travelled to the second location the item is also in "
       "the second location. If a person dropped an item in the first location and moved to the second location "
       "the item remains in the first location.\n\n<example>\nJohn journeyed to the bedroom. Mary grabbed the "
       "apple. Mary went back to the bathroom. Daniel journeyed to the bedroom. Daniel moved to the garden. Mary "
       "travelled to the kitchen. Where was the apple before the kitchen?\n"
       "Answer: Before the kitchen the apple was in the bathroom.\n</example>\n"
       "<example>\nJohn went back to the bedroom. John went back to the garden. John went back to the kitchen. "
       "Sandra took the football. Sandra travelled to the garden. Sandra journeyed to the bedroom. Where was the "
       "football before the bedroom?\nAnswer: Before the bedroom the football was in the garden.\n"
       "</example>\n\nAlways return your answer in the following format: Before the $location_1$ the $item$ was "
       "in the $location_2$. Do not write anything else after that.\n"
       "\n"},
      {"qa4",
       "what lies on which side",
       {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"},
       "I will give you context with the facts about different people, their location and actions, hidden in some "
       "random text and a question. You need to answer the question based only on the information from the facts.\n"
       "\n<example>\nThe hallway is south of the kitchen. The bedroom is north of the kitchen. What is the kitchen "
       "south of?\nAnswer: bedroom\n</example>\n<example>\nThe garden is west of the bedroom. The bedroom is west "
       "of the kitchen. What is west of the bedroom?\nAnswer: garden\n"
       "</example>\n\nYour answer should contain only one word - location. Do not write anything else after that.\n"
       "\n"},
      {"qa5",
       "who gave what to whom",
       {"Bill", "Fred", "Jeff", "Mary", "apple", "football", "milk"},
       "I will give you context with the facts about locations and their relations hidden in some random text "
       "and a question. You need to answer the question based only on the information from the facts.\n"
       "\n<example>\nMary picked up the apple there. Mary gave the apple to Fred. Mary moved to the bedroom. Bill "
       "took the milk there. Who did Mary give the apple to?\nAnswer: Fred\n"
       "</example>\n<example>\nJeff took the football there. Jeff passed the football to Fred. Jeff got the milk "
       "there. Bill travelled to the bedroom. Who gave the football?\n"
       "Answer: Jeff\n</example>\n<example>\nFred picked up the apple there. Fred handed the apple to Bill. Bill "
       "journeyed to the bedroom. Jeff went back to the garden. What did Fred give to Bill?\n"
       "Answer: apple\n</example>\n\nYour answer should contain only one word. Do not write anything else after "
       "that. Do not explain your answer.\n\n"}};
  return all;
}

const std::vector<std::string> kLengths = {"0k", "1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k"};

class BabiLong final : public Workload {
 public:
  explicit BabiLong(const Task& task) : task_(&task) {}
  void parameters(ParameterVisitor& p) override {
    p("length", length_).one_of(kLengths).doc("tokens of a prompt, by the tokenizer of GPT-2");
  }

 protected:
  void describe(WorkloadInfo& info) const override { info.files = {fmt::format("{}_{}.jsonl", task_->name, length_)}; }
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir),
                           [task = task_](const Row& row, const std::string& place, Sample& sample) {
                             const std::string question = string_field(row, "question", place);
                             const std::string context =
                                 fmt::format("{}<context>\n{}\n</context>\n\n", task->instruction,
                                             strip(string_field(row, "input", place)));
                             sample.question = {0, context.size()};
                             sample.messages = {{"user", strip(context + "Question: " + question)}};
                             sample.references = {string_field(row, "target", place)};
                             sample.extras = nlohmann::json{{"question", question}, {"labels", task->labels}}.dump();
                             return true;
                           });
  }

 private:
  const Task* task_;
  std::string length_ = "4k";
};

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : tasks()) {
    WorkloadRegistration(
        {.name = fmt::format("babilong/{}", task.name),
         .family = "babilong",
         .title = fmt::format("BABILong {}: {}, told among sentences of books", task.name, task.title),
         .source = "https://huggingface.co/datasets/RMT-team/babilong",
         .download = fmt::format("python3 -c \"import datasets, os; [datasets.load_dataset('RMT-team/babilong', n, "
                                 "split='{0}').to_json(os.environ['KVARENA_DATA'] + f'/babilong/{0}_{{n}}.jsonl') "
                                 "for n in '{1}'.split()]\"",
                                 task.name, fmt::join(kLengths, " ")),
         .licence = "Apache-2.0",
         .metrics = {"babilong"},
         .folder = "babilong",
         .files = {fmt::format("{}_4k.jsonl", task.name)},
         .samples = 100,
         .generation = {.max_new_tokens = 20}},
        [&task] { return std::make_unique<BabiLong>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
