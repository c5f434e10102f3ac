// HELMET (princeton-nlp/HELMET @4526dfb): in-context learning, questions over retrieved passages, re-ranking and
// answers with citations, at its five lengths. data.py is followed draw for draw: the rows and demonstrations are those
// that seed 42 gives there. Prompts of up to `length` less the answer's tokens are cut at the end of their passages or
// examples by an experiment's max_prompt_tokens. Nothing but its length ends an answer: the configs' stop_new_line is
// no argument of eval.py. Questions with citations stand before their passages, so that they are always seen.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/context_rows.h"
#include "datasets/numpy_permutation.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/python_random.h"

namespace kvarena::datasets {
namespace {

enum class Kind { icl, qa, rerank, cite };

struct Task {
  const char* name;
  const char* title;
  Kind kind;
  const char* file;              // {} is the size, of ICL the part
  const char* demonstrations;    // of ICL the field of the label
  std::array<int64_t, 5> sizes;  // examples or passages of a prompt, by length
  int64_t rows;
  int64_t labels = 0;
  const char* load = "";  // Python that loads the data set of ICL: its training set, and the one that is asked
};

constexpr std::array<int64_t, 5> kPassages = {50, 105, 220, 440, 1000}, kCited = {30, 75, 165, 345, 700};
constexpr const char* kTrec = "load('CogComp/trec', revision='refs/convert/parquet')";
constexpr Task kTasks[] = {
    {"icl_trec_coarse",
     "kinds of questions, as numbers",
     Kind::icl,
     "trec_{}.jsonl",
     "coarse_label",
     {400, 800, 1600, 3300, 6600},
     500,
     6,
     kTrec},
    {"icl_trec_fine",
     "fine kinds of questions, as numbers",
     Kind::icl,
     "trec_{}.jsonl",
     "fine_label",
     {400, 800, 1600, 3200, 6400},
     500,
     50,
     kTrec},
    {"icl_banking77",
     "what a bank's customer wants, as a number",
     Kind::icl,
     "banking77_{}.jsonl",
     "label",
     {360, 720, 1450, 2900, 5900},
     500,
     77,
     "load('PolyAI/banking77', revision='refs/convert/parquet')"},
    {"icl_clinic150",
     "what a speaker wants, as a number",
     Kind::icl,
     "clinic150_{}.jsonl",
     "intent",
     {440, 880, 1750, 3525, 7050},
     500,
     151,
     "load('clinc_oos', 'plus')"},
    {"icl_nlu",
     "what a home's owner wants, as a number",
     Kind::icl,
     "nlu_{}.jsonl",
     "label",
     {510, 1020, 2040, 4080, 8296},
     500,
     68,
     "load('xingkunliuxtracta/nlu_evaluation_data', split='train', "
     "revision='refs/convert/parquet').train_test_split(test_size=0.1, seed=42)"},
    {"kilt_nq", "Natural Questions over passages", Kind::qa, "nq-dev-multikilt_1000_k{}_dep6.jsonl",
     "nq-train-multikilt_1000_k3_dep6.jsonl", kPassages, 600},
    {"kilt_triviaqa", "TriviaQA over passages", Kind::qa, "triviaqa-dev-multikilt_1000_k{}_dep6.jsonl",
     "triviaqa-train-multikilt_1000_k3_dep6.jsonl", kPassages, 600},
    {"kilt_hotpotqa", "HotpotQA over passages", Kind::qa, "hotpotqa-dev-multikilt_1000_k{}_dep3.jsonl",
     "hotpotqa-train-multikilt_1000_k3_dep3.jsonl", kPassages, 300},
    {"kilt_popqa", "PopQA of rare subjects over passages", Kind::qa, "popqa_test_1000_k{}_dep6.jsonl",
     "popqa_test_1000_k3_dep6.jsonl", kPassages, 600},
    {"msmarco_rerank",
     "MS MARCO's passages in order of relevance",
     Kind::rerank,
     "test_reranking_data_k{}_dep3.jsonl",
     "test_reranking_data_k10_dep3.jsonl",
     {50, 130, 285, 600, 1000},
     300},
    {"alce_asqa", "ASQA's ambiguous questions, with citations, which are not judged", Kind::cite,
     "asqa_eval_gtr_top2000.json", "asqa_revised.json", kCited, 100},
    {"alce_qampari", "QAMPARI's questions for lists, with citations, which are not judged", Kind::cite,
     "qampari_eval_gtr_top2000.json", "qampari_revised.json", kCited, 100}};

const std::vector<std::string> kLengths = {"8k", "16k", "32k", "64k", "128k"};
constexpr uint32_t kSeed = 42;
constexpr uint32_t kShots = 2, kQuestions = 100, kTested = 500;
constexpr double kRare = 3;  // popularity of PopQA's subjects, decimal logarithm, at most

/// int(sha256(text), 16) % 2**31
uint32_t seed_of(const std::string& text) {
  return static_cast<uint32_t>(std::stoul(sha256(text).substr(56), nullptr, 16)) & 0x7fffffff;
}

std::vector<Row> read_rows(const std::filesystem::path& file) {
  std::vector<Row> all;
  RecordReader rows(file);
  while (const std::optional<Record> record = rows.next()) all.push_back(parse_object(*record));
  return all;
}

/// Value that tells a row's question from others.
const Row& key_of(const Row& row, const std::string& place) {
  return any_field(row, row.contains("qid") ? "qid" : row.contains("id") ? "id" : "question", place);
}

bool is_rare(const Row& row, const std::string& place) {
  if (!row.contains("s_pop")) return true;
  if (!row["s_pop"].is_number()) fail({.place = place, .found = row["s_pop"].dump(), .expected = "a number s_pop"});
  return std::log10(row["s_pop"].get<double>()) < kRare;
}

/// A field that is a list of at least `least` values.
const Row& list_field(const Row& row, const char* field, const std::string& place, size_t least = 1) {
  const Row& list = any_field(row, field, place);
  if (!list.is_array() || list.size() < least) {
    fail({.place = fmt::format("{}: {}", place, field),
          .found = list.is_array() ? fmt::format("{} values", list.size()) : "no list",
          .expected = fmt::format("at least {}", least)});
  }
  return list;
}

/// The keys that are asked about, of PopQA of rare subjects, and how many rows there are of each.
std::map<Row, int64_t> drawn_keys(const std::filesystem::path& file) {
  std::map<Row, int64_t> all, drawn;
  RecordReader rows(file);
  while (const std::optional<Record> record = rows.next()) {
    const Row row = parse_object(*record);
    if (is_rare(row, record->place)) ++all[key_of(row, record->place)];
  }
  const std::vector<std::pair<Row, int64_t>> sorted(all.begin(), all.end());
  const auto n = static_cast<uint32_t>(sorted.size());
  for (const uint32_t i : PythonRandom(kSeed).sample(n, std::min(kQuestions, n))) drawn.insert(sorted[i]);
  return drawn;
}

/// Two demonstrations of different keys among `rows`, in the order that the sample's key gives.
std::vector<const Row*> demonstrations(const std::vector<const Row*>& rows, const std::string& key,
                                       const std::string& place) {
  std::vector<const Row*> shown;
  std::set<Row> keys;
  for (const uint32_t i : numpy_permutation(seed_of(key), static_cast<uint32_t>(rows.size()))) {
    if (keys.insert(key_of(*rows[i], place)).second) shown.push_back(rows[i]);
    if (shown.size() == kShots) return shown;
  }
  fail({.place = place, .found = fmt::format("{} demonstrations of other questions", shown.size()), .expected = "two"});
}

/// The first `most` passages of a list in a form with slots ID, id, title and text.
std::string passages(const Row& list, const std::string& form, const std::string& place, size_t most = SIZE_MAX) {
  const auto slot = [&](const Row& one, const char* name) {
    return form.find(fmt::format("{{{}}}", name)) == std::string::npos ? "" : string_field(one, name, place);
  };
  std::vector<std::string> all;
  for (const Row& one : list) {
    if (all.size() == most) break;
    const std::string number = std::to_string(all.size() + 1), id = slot(one, "id"), title = slot(one, "title"),
                      text = slot(one, "text");
    all.push_back(render(form, {{"ID", number}, {"id", id}, {"title", title}, {"text", text}}).text);
  }
  return fmt::format("{}", fmt::join(all, "\n\n"));
}

/// Puts the prompt together from the parts before the question and from there on.
void ask(Sample& sample, const std::string& before, const std::string& question) {
  sample.messages = {{"user", before + question}};
  sample.question = {0, before.size()};
}

/// Draws `count` rows with their labels as even as can be, in sets of one of each; again where a label has too few.
std::vector<uint32_t> balanced(const std::vector<int64_t>& labels, size_t count, uint32_t seed) {
  PythonRandom draws(seed);
  std::vector<std::vector<uint32_t>> groups;
  std::map<int64_t, size_t> group_of;  // of a label, in the order of first sight
  for (uint32_t i = 0; i < labels.size(); ++i) {
    const auto [at, fresh] = group_of.try_emplace(labels[i], groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(i);
  }
  std::vector<std::vector<uint32_t>> sets((count + groups.size() - 1) / groups.size());
  for (const std::vector<uint32_t>& group : groups) {
    const auto n = static_cast<uint32_t>(group.size()), rounds = static_cast<uint32_t>(sets.size());
    std::vector<uint32_t> drawn = draws.sample(n, rounds % n);
    while (drawn.size() < rounds) {
      const auto more = draws.sample(n, std::min(rounds - static_cast<uint32_t>(drawn.size()), n));
      drawn.insert(drawn.end(), more.begin(), more.end());
    }
    for (size_t i = 0; i < rounds; ++i) sets[i].push_back(group[drawn[i]]);
  }
  std::vector<uint32_t> order;
  for (std::vector<uint32_t>& set : sets) {
    draws.shuffle(set);
    order.insert(order.end(), set.begin(), set.end());
  }
  order.resize(count);
  return order;
}

std::vector<int64_t> labels_of(const std::vector<Row>& rows, const Task& task, const std::string& place) {
  std::vector<int64_t> labels;
  for (const Row& row : rows) labels.push_back(integer_field(row, task.demonstrations, place));
  if (labels.empty() || std::ranges::min(labels) < 0 || std::ranges::max(labels) >= task.labels) {
    fail({.place = place,
          .found = "no rows, or a label that the data set has not",
          .expected = fmt::format("labels from 0 to {}", task.labels - 1)});
  }
  return labels;
}

/// Examples with numbers drawn for their labels, and a text to label.
ExpandRow icl(const Task& task, int64_t shots, const std::filesystem::path& test, const std::filesystem::path& train) {
  const std::vector<int64_t> tested = labels_of(read_rows(test), task, test.string());
  std::vector<int64_t> times(tested.size(), 1);  // that each row is asked
  if (tested.size() > kTested) {
    const std::vector<uint32_t> order = numpy_permutation(kSeed, static_cast<uint32_t>(tested.size()));
    std::vector<int64_t> shuffled;
    for (const uint32_t i : order) shuffled.push_back(tested[i]);
    std::ranges::fill(times, 0);
    for (const uint32_t i : balanced(shuffled, kTested, kSeed)) ++times[order[i]];
  }
  std::vector<Row> examples = read_rows(train);
  return [&task, shots, times, examples, labels = labels_of(examples, task, train.string())](
             const Row& row, const std::string& place, const Sample& sample) {
    const std::string text = string_field(row, "text", place);
    const uint32_t seed = (seed_of(text) + kSeed) & 0x7fffffff;
    std::vector<int64_t> numbers(static_cast<size_t>(task.labels));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
    PythonRandom(seed).shuffle(numbers);
    std::string before =
        "Use the provided mapping from the text to label to assign a label to the text. Only output \"label: {label}\" "
        "and nothing else. ";
    for (const uint32_t i : balanced(labels, static_cast<size_t>(shots), seed)) {
      before += fmt::format("\n\n{}\nlabel: {}", string_field(examples[i], "text", place),
                            numbers[static_cast<size_t>(labels[i])]);
    }
    std::vector<Sample> samples;
    for (int64_t k = 0; k < times[std::stoul(sample.id)]; ++k) {
      Sample& one = samples.emplace_back(sample);
      if (k > 0) one.id += fmt::format("-{}", k);
      ask(one, before, fmt::format("\n\n{}\nlabel:", text));
      one.references = {std::to_string(numbers[static_cast<size_t>(integer_field(row, task.demonstrations, place))])};
      one.extras = R"({"task": "icl"})";
    }
    return samples;
  };
}

/// All rows, or those of other questions than `key`.
std::vector<const Row*> others(const std::vector<Row>& rows, const Row* key, const std::string& place) {
  std::vector<const Row*> kept;
  for (const Row& row : rows) {
    if (key == nullptr || key_of(row, place) != *key) kept.push_back(&row);
  }
  return kept;
}

ExpandRow qa(const std::filesystem::path& test, const std::filesystem::path& demos) {
  std::vector<Row> shown = read_rows(demos);
  std::erase_if(shown, [&](const Row& row) { return !is_rare(row, demos.string()); });
  const bool one_file = !shown.empty() && shown.front().contains("s_pop");
  return [shown, one_file, keys = drawn_keys(test)](const Row& row, const std::string& place, const Sample& sample) {
    const Row& key = key_of(row, place);
    if (!keys.contains(key)) return std::vector<Sample>{};
    std::string before =
        "Use the given documents to write a concise and short answer to the question. Write your answer in the "
        "following format:\nAnswer: [answer]\n\n";
    const std::string form = "Document (Title: {title}): {text}";
    for (const Row* demo : demonstrations(others(shown, one_file ? &key : nullptr, place), python_text(key), place)) {
      before +=
          fmt::format("{}\n\nQuestion: {}\nAnswer: {}\n\n", passages(list_field(*demo, "ctxs", place), form, place),
                      string_field(*demo, "question", place), python_text(list_field(*demo, "answers", place)[0]));
    }
    Sample made = sample;
    ask(made, before + passages(list_field(row, "ctxs", place), form, place),
        fmt::format("\n\nQuestion: {}\nAnswer:", string_field(row, "question", place)));
    made.references = strings_field(row, "answers", place);
    made.extras = R"({"task": "qa"})";
    return std::vector<Sample>{made};
  };
}

/// Ids of passages from the most relevant on; of equal ones in the order of the file.
std::string ranking(const Row& list, const std::string& place) {
  std::vector<std::pair<int64_t, std::string>> ids;
  for (const Row& one : list) ids.emplace_back(integer_field(one, "label", place), string_field(one, "id", place));
  std::ranges::stable_sort(ids, std::greater(), &std::pair<int64_t, std::string>::first);
  std::vector<std::string> names;
  for (const auto& [label, id] : ids) names.push_back(id);
  return fmt::format("{}", fmt::join(names, " > "));
}

ExpandRow rerank(const std::filesystem::path& test, const std::filesystem::path& demos) {
  const std::map<Row, int64_t> keys = drawn_keys(test);
  int64_t rows = 0;
  for (const auto& [key, count] : keys) rows += count;
  std::vector<Row> shown = read_rows(demos);
  const bool filtered = std::ssize(shown) > 2 * rows;
  if (filtered) std::erase_if(shown, [&](const Row& row) { return keys.contains(key_of(row, demos.string())); });
  return [shown, filtered, keys](const Row& row, const std::string& place, const Sample& sample) {
    const Row& key = key_of(row, place);
    if (!keys.contains(key)) return std::vector<Sample>{};
    const Row& list = list_field(row, "ctxs", place);
    const std::string form =
        list[0].contains("title") ? "[ID: {id}] Document (Title: {title}): {text}" : "[ID: {id}] Document: {text}";
    std::string before =
        "You are provided with a list of documents, each indicated by their ID. Rank each document based on their "
        "relevance to the question in descending order from most relelvant to least relevant texts. Include all "
        "documents in the rankings. Write your answer using the unique IDs, with the following format:\nRanking: ID3 > "
        "ID1 > ID2\n\n";
    for (const Row* demo : demonstrations(others(shown, filtered ? nullptr : &key, place), python_text(key), place)) {
      const Row& ctxs = list_field(*demo, "ctxs", place);
      before += fmt::format("{}\n\nQuery: {}\nRanking: {}\n\n", passages(ctxs, form, place),
                            string_field(*demo, "query", place), ranking(ctxs, place));
    }
    nlohmann::json relevance;
    for (const Row& one : list) relevance[string_field(one, "id", place)] = integer_field(one, "label", place);
    Sample made = sample;
    ask(made, before + passages(list, form, place),
        fmt::format("\n\nQuery: {}\nRanking:", string_field(row, "query", place)));
    made.references = {ranking(list, place)};
    made.extras = nlohmann::json{{"task", "rerank"}, {"relevance", relevance}}.dump();
    return std::vector<Sample>{made};
  };
}

/// Collects what answers with citations are scored by.
nlohmann::json expected(const Row& row, const std::string& place) {
  std::vector<std::vector<std::string>> answers;
  if (row.contains("answers")) {
    for (const Row& forms : list_field(row, "answers", place)) {
      answers.push_back(strings_field({{"answers", forms}}, "answers", place));
    }
    return {{"task", "qampari"}, {"answers", answers}};
  }
  std::vector<std::string> long_answers;
  for (const Row& pair : list_field(row, "qa_pairs", place)) {
    answers.push_back(strings_field(pair, "short_answers", place));
  }
  for (const Row& one : list_field(row, "annotations", place)) {
    long_answers.push_back(string_field(one, "long_answer", place));
  }
  return {{"task", "asqa"}, {"answers", answers}, {"long_answers", long_answers}};
}

ExpandRow cite(size_t documents, const std::filesystem::path& test, const std::filesystem::path& demos) {
  const auto rows = static_cast<uint32_t>(count_records(test));
  std::set<uint32_t> kept;
  for (const uint32_t i : numpy_permutation(kSeed, rows)) {
    if (kept.size() < kQuestions) kept.insert(i);
  }
  const Row prompts = parse_object({.text = read_file(demos), .place = demos.string()});
  return [documents, prompts, kept, draws = PythonRandom(kSeed)](const Row& row, const std::string& place,
                                                                 const Sample& sample) mutable {
    const Row& demos = list_field(prompts, "demos", place, kShots);
    const auto chosen = draws.sample(static_cast<uint32_t>(demos.size()), kShots);  // for rows that are not asked too
    if (!kept.contains(static_cast<uint32_t>(std::stoul(sample.id)))) return std::vector<Sample>{};
    const std::string instruction = string_field(prompts, "instruction", place),
                      form = string_field(prompts, "doc_prompt", place);
    std::string text;
    for (const uint32_t i : chosen) {
      text += render(string_field(prompts, "demo_prompt", place),
                     {{"instruction", instruction},
                      {"question", string_field(demos[i], "question", place)},
                      {"context", passages(list_field(demos[i], "docs", place), form, place)},
                      {"answer", string_field(demos[i], "answer", place)}})
                  .text +
              "\n\n\n";
    }
    Sample made = sample;
    made.messages = {
        {"user", fmt::format("{}{}\n\nQuestion: {}\n\n{}", text, instruction, string_field(row, "question", place),
                             passages(list_field(row, "docs", place), form, place, documents))}};
    made.references = {string_field(row, "answer", place)};
    made.extras = expected(row, place).dump();
    return std::vector<Sample>{made};
  };
}

class Helmet final : public Workload {
 public:
  explicit Helmet(const Task& task) : task_(task) {}
  void parameters(ParameterVisitor& p) override {
    p("length", length_).one_of(kLengths).doc("tokens of a prompt with its answer, by the tokenizer of Llama 2");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    if (task_.kind == Kind::qa || task_.kind == Kind::rerank)
      info.files = {fmt::format(fmt::runtime(task_.file), size())};
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    WorkloadInfo beside = info();
    beside.files = {task_.kind == Kind::icl ? fmt::format(fmt::runtime(task_.file), "train") : task_.demonstrations};
    const std::filesystem::path other = require_data_file(beside, file.root).path;
    switch (task_.kind) {
      case Kind::icl: return make_context_source(file, icl(task_, size(), file.path, other));
      case Kind::qa: return make_context_source(file, qa(file.path, other));
      case Kind::rerank: return make_context_source(file, rerank(file.path, other));
      case Kind::cite: return make_context_source(file, cite(static_cast<size_t>(size()), file.path, other));
    }
    return nullptr;
  }

 private:
  [[nodiscard]] int64_t size() const {
    return task_.sizes[static_cast<size_t>(std::ranges::find(kLengths, length_) - kLengths.begin())];
  }

  const Task& task_;
  std::string length_ = kLengths.front();
};

/// Command that fetches a task's files: of ICL the data sets as they are on Hugging Face, of the others their part of
/// HELMET's archive of 34 GB, and the demonstrations of citations from its repository.
std::string download(const Task& task) {
  const std::string_view file = task.file;
  if (task.kind == Kind::icl) {
    const std::string_view data = file.substr(0, file.find('_'));
    return fmt::format(
        "mkdir -p $KVARENA_DATA/helmet/icl; python3 -c \"from datasets import load_dataset as load; d = {}; "
        "[d[s].to_json(f'$KVARENA_DATA/helmet/icl/{}_{{n}}.jsonl') for n, s in zip(('train', 'test'), d)]\"",
        task.load, data);
  }
  const std::string members = task.kind == Kind::qa       ? fmt::format("kilt/{}*", file.substr(0, file.find("_1000")))
                              : task.kind == Kind::rerank ? "msmarco/*"
                                                          : fmt::format("alce/{}", file);
  const std::string archive = fmt::format(
      "mkdir -p $KVARENA_DATA/helmet; curl -L https://huggingface.co/datasets/princeton-nlp/HELMET/resolve/main/"
      "data.tar.gz | tar -xz -C $KVARENA_DATA/helmet --wildcards 'data/{}'",
      members);
  if (task.kind != Kind::cite) return archive;
  return fmt::format(
      "curl -L --create-dirs -o $KVARENA_DATA/helmet/prompts/{0} https://raw.githubusercontent.com/"
      "princeton-nlp/HELMET/4526dfbdc512bd9ff721da336bff4e3e75ecfd27/prompts/{0}; {1}",
      task.demonstrations, archive);
}

[[maybe_unused]] const bool registered = [] {
  for (const Task& task : kTasks) {
    const std::map<Kind, int64_t> tokens = {{Kind::icl, 20}, {Kind::qa, 20}, {Kind::rerank, 200}, {Kind::cite, 300}};
    const auto first = task.kind == Kind::icl ? "test" : std::to_string(task.sizes.front());
    WorkloadRegistration({.name = fmt::format("helmet/{}", task.name),
                          .family = "helmet",
                          .title = fmt::format("HELMET {}: {}", task.name, task.title),
                          .source = "https://huggingface.co/datasets/princeton-nlp/HELMET",
                          .download = download(task),
                          .licence = "MIT (repository); data as their sources state",
                          .metrics = {task.kind == Kind::cite ? "alce" : "helmet"},
                          .folder = "helmet",
                          .files = {fmt::format(fmt::runtime(task.file), first)},
                          .samples = task.rows,
                          .chat_template = task.kind == Kind::cite,
                          .generation = {.max_new_tokens = tokens.at(task.kind)},
                          .truncation = TruncationRule::context_end},
                         [&task] { return std::make_unique<Helmet>(task); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
