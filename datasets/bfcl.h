#pragma once
// Files of BFCL (ShishirPatil/gorilla @6ea57973, bfcl_eval) and the prompt that its runner makes for models without
// function calls of their own: plain text, descriptions as JSON, calls in Python form.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "datasets/records.h"
#include "datasets/workload.h"

namespace kvarena::datasets {

inline constexpr const char* kBfclSource =
    "https://github.com/ShishirPatil/gorilla (berkeley-function-call-leaderboard)";

/// Accepted answers of a category by id: the rows' "ground_truth".
using BfclAnswers = std::map<std::string, Row>;

/// Reads the file in possible_answer/ that goes with the category's own, below the same `root`. Throws UserError where
/// there is none.
[[nodiscard]] BfclAnswers read_bfcl_answers(WorkloadInfo info, const std::filesystem::path& root);
/// The answer to a row. Throws UserError where there is none.
[[nodiscard]] const Row& bfcl_answer(const BfclAnswers& answers, const std::string& id, const std::string& place);

/// Descriptions of functions in a file of multi_turn_func_doc/, below the same `root` as the category's own.
[[nodiscard]] Row read_bfcl_functions(WorkloadInfo info, const std::filesystem::path& root, const std::string& file);
/// Functions with the sentence on Python's syntax that the runner adds to each description.
[[nodiscard]] Row with_bfcl_hints(Row functions);
/// Messages that begin a conversation: the system's, which describes `functions`, and those of the first turn. A system
/// message of the turn's own follows behind it.
[[nodiscard]] std::vector<Message> bfcl_messages(const Row& functions, const Row& turn, const std::string& place);

/// The results in a message that the runner makes of what calls returned, Python's text of a list of {"role": "tool",
/// "name": CALL, "content": TEXT}; none in other messages.
[[nodiscard]] std::vector<ToolResult> bfcl_results(const std::string& message);

/// One command that fetches files of the package's data folder to $KVARENA_DATA/bfcl.
[[nodiscard]] std::string bfcl_download(const std::vector<std::string>& files);

}  // namespace kvarena::datasets
