#pragma once
// Every command of the program, each in the file of its name.

#include "harness/cli/command.h"

namespace kvarena::cli {

[[nodiscard]] Command audit_command();
[[nodiscard]] Command codecs_command();
[[nodiscard]] Command compare_command();
[[nodiscard]] Command completion_command();
[[nodiscard]] Command doctor_command();
[[nodiscard]] Command estimate_command();
[[nodiscard]] Command fit_command();
[[nodiscard]] Command history_command();
[[nodiscard]] Command inspect_command();
[[nodiscard]] Command judge_command();
[[nodiscard]] Command merge_command();
[[nodiscard]] Command methods_command();
[[nodiscard]] Command metrics_command();
[[nodiscard]] Command model_command();
[[nodiscard]] Command model_check_command();
[[nodiscard]] Command model_generate_command();
[[nodiscard]] Command model_list_command();
[[nodiscard]] Command model_logits_command();
[[nodiscard]] Command model_pull_command();
[[nodiscard]] Command model_tokenize_command();
[[nodiscard]] Command new_method_command();
[[nodiscard]] Command papers_command();
[[nodiscard]] Command parity_command();
[[nodiscard]] Command questions_command();
[[nodiscard]] Command report_command();
[[nodiscard]] Command reuse_command();
[[nodiscard]] Command run_command();
[[nodiscard]] Command schema_command();
[[nodiscard]] Command score_command();
[[nodiscard]] Command serve_command();
[[nodiscard]] Command status_command();
[[nodiscard]] Command store_command();
[[nodiscard]] Command submit_command();
[[nodiscard]] Command transfers_command();
[[nodiscard]] Command worker_command();
[[nodiscard]] Command workloads_command();
[[nodiscard]] Command workloads_check_command();
[[nodiscard]] Command workloads_pull_command();

}  // namespace kvarena::cli
