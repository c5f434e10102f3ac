#include "harness/engine/stored/prefill_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/engine/stored/stored_prefill.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".prefill";
constexpr size_t kHashDigits = 64;

/// An adapter's files, which may become others under its name.
std::string state_of(const std::string& adapter) {
  std::vector<std::string> files;
  for (const fs::directory_entry& file : fs::directory_iterator(find_model(adapter))) {
    if (!file.is_regular_file()) continue;
    files.push_back(fmt::format("{} {} {}", file.path().string(), file.file_size(),
                                file.last_write_time().time_since_epoch().count()));
  }
  std::ranges::sort(files);
  return fmt::format("{}", fmt::join(files, "\n"));
}

/// All that is asked of a prefill. The binding has as many names as Needs has members, so that a new one is seen here.
std::string text_of(const Needs& needs) {
  const auto& [attention, window, step_attention, hidden, projection, step_hidden, future, moments, taps,
               reconstructions, restorations, statistics, sliding] = needs;
  std::vector<int> places;
  for (const Tap tap : taps) places.push_back(static_cast<int>(tap));
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}", attention, window, step_attention, hidden, projection,
                                 step_hidden, future, moments, places, sliding);
  for (const Reconstruction& what : reconstructions) {
    const auto& [chunk, first, next, tail, sinks, norm, bare] = what;
    text += fmt::format(" [{} {}:{} {}:{} {} {} {} {}]", chunk, first.size(), first, next.size(), next, tail,
                        sinks.value_or(-1), norm, bare);
  }
  for (const std::string& adapter : restorations) text += fmt::format(" {{{}}}", state_of(adapter));
  for (const auto& each : statistics) text += fmt::format(" {}:{} {}", each->id().size(), each->id(), each->width());
  return text;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The part in front of [key][SHA-256 of all before]; nothing where that is not so.
std::optional<std::span<const std::byte>> content_of(std::span<const std::byte> file, const std::string& key) {
  if (file.size() < 2 * kHashDigits) return std::nullopt;
  const auto hashed = file.first(file.size() - kHashDigits);
  if (as_text(hashed.last(kHashDigits)) != key || as_text(file.last(kHashDigits)) != sha256(hashed)) {
    return std::nullopt;
  }
  return hashed.first(hashed.size() - kHashDigits);
}

struct KeptFile {
  fs::path path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

/// Prefills of the folder and what crashes left of some, longest unused first.
std::vector<KeptFile> files_of(const fs::path& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().find(kEnding) == std::string::npos) continue;
    std::error_code gone;
    const auto bytes = static_cast<int64_t>(at->file_size(gone));
    const fs::file_time_type used = gone ? fs::file_time_type{} : at->last_write_time(gone);
    if (!gone) files.push_back({.path = at->path(), .bytes = bytes, .used = used});
  }
  std::ranges::sort(files, {}, &KeptFile::used);
  return files;
}

}  // namespace

int64_t kept_prefill_bytes() {
  constexpr const char* kVariable = "KVARENA_PREFILLS";
  constexpr double kGibibyte = 1 << 30;
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double gibibytes = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(gibibytes >= 0) || gibibytes > 1e6) {
    fail({.place = kVariable,
          .found = fmt::format("\"{}\"", text),
          .expected = "GiB that prompts which were read may take in the cache folder, 0 for none"});
  }
  return static_cast<int64_t>(gibibytes * kGibibyte);
}

PrefillFolder::PrefillFolder(fs::path folder, std::string computer, int64_t most_bytes, double least_seconds)
    : folder_(std::move(folder)),
      computer_(std::move(computer)),
      most_bytes_(most_bytes),
      least_seconds_(least_seconds),
      began_(fs::file_time_type::clock::now()) {}

std::string PrefillFolder::key_of(std::span<const int32_t> tokens, const Needs& needs) const {
  return sha256(fmt::format("{}\n{}\n{}", computer_, text_of(needs), sha256(std::as_bytes(tokens))));
}

Prefill PrefillFolder::read(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                            std::shared_ptr<const ModelFacts> facts) const {
  const std::string key = key_of(tokens, needs);
  const fs::path file = folder_ / (key + std::string(kEnding));
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    try {
      const MappedFile mapped(file);
      if (const auto content = content_of(mapped.bytes(), key)) {
        Prefill prompt = restore_prefill(model, tokens, needs, facts, *content);
        fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
        return prompt;
      }
    } catch (const UserError&) {  // gone meanwhile, or not to be opened: computed as if it were not there
    }
  }
  Prefill prompt = prefill(model, tokens, needs, kPrefillChunk, std::move(facts));
  if (prompt.seconds >= least_seconds_ && model.config().recurrent_layers.empty()) {
    keep(file, key, store_prefill(model, prompt));
  }
  return prompt;
}

/// Whether so many bytes more find room, once files that were not used since began_ have made it.
bool PrefillFolder::make_room(int64_t bytes) const {
  std::vector<KeptFile> files = files_of(folder_);
  const auto in_use = std::ranges::find_if(files, [&](const KeptFile& file) { return file.used >= began_; });
  int64_t total = bytes;
  for (auto file = in_use; file != files.end(); ++file) total += file->bytes;
  if (total > most_bytes_) return false;
  for (auto file = in_use; file != files.begin();) {  // the newest stay while they find room
    --file;
    std::error_code ignored;
    if (total + file->bytes > most_bytes_) {
      fs::remove(file->path, ignored);
    } else {
      total += file->bytes;
    }
  }
  return true;
}

void PrefillFolder::keep(const fs::path& file, const std::string& key, std::vector<std::byte> bytes) const {
  const auto append = [&](const std::string& hash) {
    const auto more = std::as_bytes(std::span(hash));
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  append(key);
  append(sha256(bytes));
  if (!make_room(std::ssize(bytes))) return;
  try {
    std::error_code ignored;
    fs::create_directories(folder_, ignored);
    write_file(file, as_text(bytes));
  } catch (const UserError&) {  // full or read-only: a prompt is computed again
  }
}

}  // namespace kvarena
