#pragma once
// Options of a judge model behind an endpoint, for the commands that ask one.

#include <optional>
#include <string>

#include "harness/cli/option_set.h"
#include "harness/core/home.h"
#include "harness/evaluate/chat_endpoint.h"

namespace kvarena::cli {

struct JudgeOptions {
  std::optional<std::string> url;
  evaluate::EndpointSettings endpoint{.cache = kvarena_home() / "judge-cache"};

  void declare(OptionSet& o);
  /// The endpoint, with its key and the retries told on standard error. Throws UserError where the judge has no address
  /// or no name.
  [[nodiscard]] evaluate::EndpointSettings settings() const;
};

/// Tells on standard error what was asked of a judge, and its cost.
void print_use(const evaluate::EndpointUse& use, const std::string& model);

}  // namespace kvarena::cli
