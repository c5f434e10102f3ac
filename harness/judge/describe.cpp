#include "harness/judge/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvarena::judge {

void describe_prompt(store::SampleResult& result, const Request& request) {
  result.prompt_sha256 = request.sample->prompt_sha256;
  result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  result.truncated_tokens = request.sample->truncation.tokens_removed;
}

void add_bytes(store::SampleResult& result, const Session& session, int64_t full_bytes) {
  const auto resident = static_cast<double>(session.resident_bytes);
  const auto full = static_cast<double>(full_bytes);
  result.values.push_back({.metric = "resident_bytes", .value = resident, .unit = "bytes"});
  result.values.push_back({.metric = "full_kv_bytes", .value = full, .unit = "bytes"});
  result.values.push_back({.metric = "kept_bytes_fraction", .value = resident / full, .unit = "fraction"});
  result.values.push_back({.metric = "compression_factor", .value = full / resident, .unit = ""});
  result.peak_bytes["device"] = std::max(session.peak_bytes, session.resident_bytes);
}

void add_activity(store::SampleResult& result, const Activity& activity) {
  result.activity_json = nlohmann::json{{"entries_dropped", activity.entries_dropped},
                                        {"entries_packed", activity.entries_packed},
                                        {"entries_skipped", activity.entries_skipped},
                                        {"tokens_drafted", activity.tokens_drafted},
                                        {"tokens_accepted", activity.tokens_accepted}}
                             .dump();
}

}  // namespace kvarena::judge
