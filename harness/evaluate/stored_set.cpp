#include "harness/evaluate/stored_set.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "harness/engine/stored/profiler.h"
#include "harness/evaluate/method_files.h"
#include "harness/evaluate/serving_point.h"
#include "harness/method/eviction.h"
#include "harness/method/registry.h"
#include "harness/storage/context_folder.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;
using stored::CacheForm;

/// The form that a placement policy compresses contexts to, or nothing.
std::optional<CacheForm> compressed_form(const Method& method) {
  const auto* placing = dynamic_cast<const PlacingMethod*>(&method);
  if (placing == nullptr || !placing->compressor()) return std::nullopt;
  const Nested<Method>& compressor = placing->compressor();
  return CacheForm{.label = compressor.settings(),
                   .keep = json::parse(compressor.settings()).value("keep", 1.0),
                   .method = compressor.shared()};
}

std::vector<CacheForm> configured_forms(const StoredContextsTask& task) {
  const bool ready = task.contexts.on_device();
  std::vector<CacheForm> forms = {{.ready = ready}};
  for (const experiment::ComponentEntry& entry : task.contexts.forms) {
    const json spec = spec_of(entry);
    forms.push_back({.label = entry.label,
                     .keep = spec.value("keep", 1.0),
                     .method = make_method(spec, entry.label),
                     .ready = ready});
  }
  return forms;
}

stored::Query query_of(const ContextWithQueries& context, const Request& request) {
  return {.tokens = {request.prompt.begin() + static_cast<std::ptrdiff_t>(context.tokens.size()), request.prompt.end()},
          .stop = request.stop};
}

struct ProfileQueries {
  std::vector<stored::Query> queries;
  stored::AnswerQuality quality;
};

ProfileQueries profile_queries(const StoredContextsTask& task, size_t context, std::span<const Request* const> asked) {
  ProfileQueries queries;
  for (const Request* request : asked) queries.queries.push_back(query_of(task.asked[context], *request));
  queries.quality = [&task, requests = std::vector<const Request*>(asked.begin(), asked.end())](
                        size_t i, std::span<const int32_t> answer, std::span<const int32_t> full) {
    return task.similarity(*requests[i], answer, full);
  };
  return queries;
}

/// Prefills every context once with the needs of all methods, and profiles it where a policy chooses among forms.
void read_contexts(Transformer& model, const StoredContextsTask& task, std::span<const EvaluatedMethod> methods,
                   StoredSet& set) {
  Needs needs;
  bool profiled = false;
  for (const EvaluatedMethod& evaluated : methods) {
    profiled = profiled || chooses(*evaluated.method);
    if (const Chunking* chunking = chunking_of(*evaluated.method)) needs = combine(needs, chunking->observed());
    for (const CacheForm& form : forms_of(*evaluated.method, set)) {
      if (form.method) needs = combine(needs, form.method->needs());
    }
  }
  for (size_t i = 0; i < task.asked.size(); ++i) {
    const ContextWithQueries& context = task.asked[i];
    const int64_t before = set.originals->bytes();
    set.originals->add(prefill(model, context.tokens, needs, kPrefillChunk, task.facts));
    set.full_bytes.push_back(set.originals->bytes() - before);
    if (!profiled) continue;
    std::vector<const Request*> train;
    for (const Request& request : context.train) train.push_back(&request);
    const ProfileQueries queries = profile_queries(task, i, train);
    const auto prompt = set.originals->read(i);
    set.profiles.push_back(stored::profile_forms(model, prompt, set.forms, queries.queries, queries.quality,
                                                 {.answers = task.serving.max_running}));
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const std::filesystem::path& parent) {
  std::string name = parent / "kvarena-contexts-XXXXXX";
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error || ::mkdtemp(name.data()) == nullptr) {
    fail({.place = parent.string(),
          .found = error ? error.message() : std::strerror(errno),
          .expected = "a place for a folder of stored contexts",
          .action = "make it writable or choose another"});
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool chooses(const Method& method) {
  return method.placement() != nullptr && method.placement()->chooses_forms() && !compressed_form(method);
}

const Chunking* chunking_of(const Method& method) {
  const auto* placing = dynamic_cast<const PlacingMethod*>(&method);
  return placing == nullptr ? nullptr : placing->chunking();
}

std::vector<CacheForm> forms_of(const Method& method, const StoredSet& set) {
  if (chooses(method)) return set.forms;
  CacheForm one = compressed_form(method).value_or(CacheForm{});
  one.ready = set.ready && chunking_of(method) == nullptr;  // a request's cache is put together of chunks
  return {std::move(one)};
}

std::unique_ptr<stored::ProfileRun> start_profile(Transformer& model, const StoredContextsTask& task,
                                                  const StoredSet& set, size_t context,
                                                  std::shared_ptr<const Prefill> original,
                                                  std::span<const Request* const> asked) {
  const ProfileQueries queries = profile_queries(task, context, asked);
  return std::make_unique<stored::ProfileRun>(model, std::move(original), set.forms, queries.queries, queries.quality);
}

std::shared_ptr<StoredSet> read_stored_set(Transformer& model, const StoredContextsTask& task,
                                           std::span<const EvaluatedMethod> methods) {
  auto set = std::make_shared<StoredSet>(task.folder);
  set->originals = std::make_unique<stored::Originals>(model, set->folder.path() / "originals");
  set->ready = task.contexts.on_device();
  set->forms = configured_forms(task);
  read_contexts(model, task, methods, *set);
  const double disk = task.contexts.disk_bytes_per_s;
  set->disk_bytes_per_s = disk == 0 ? storage::disk_read_rate(set->folder.path() / "probe") : disk;
  return set;
}

}  // namespace kvarena::evaluate
