#include "harness/method/plugins.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <sstream>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/method/plugin.h"
#include "harness/method/python/plugin.h"
#include "harness/method/registration.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

// Exit codes of a child: it has written what is wrong; it came to the end. Zero is what a library's own exit(0) gives.
constexpr int kTold = 3;
constexpr int kSound = 4;

constexpr std::chrono::seconds kPatience{10};  // for loading a library and making its methods
constexpr size_t kLongest = 4096;              // bytes of what it writes that are kept
constexpr size_t kLongestLine = 200;           // bytes of its first line that a message shows

std::vector<LoadedPlugin>& plugins() {
  static std::vector<LoadedPlugin> loaded;
  return loaded;
}

fs::path existing(const fs::path& path) {
  std::error_code absent;
  fs::path resolved = fs::canonical(path, absent);
  if (absent || !fs::is_regular_file(resolved)) {
    fail({.place = path.string(), .found = "no file", .expected = "a shared library or a Python file with methods"});
  }
  return resolved;
}

template <size_t N>
std::string text_of(const std::array<char, N>& place) {
  return {place.begin(), std::ranges::find(place, '\0')};
}

PluginMark read_mark(const fs::path& path, std::string_view bytes) {
  const std::string magic = std::string(kPluginMagic[0]) + std::string(kPluginMagic[1]);
  const size_t at = bytes.find(magic);
  PluginMark mark;
  if (at == std::string_view::npos || bytes.size() - at < sizeof mark) {
    fail({.place = path.string(),
          .found = "a file without the mark of a plugin",
          .expected = "a shared library with KVARENA_PLUGIN(\"name\", \"version\") in one of its sources"});
  }
  std::memcpy(static_cast<void*>(&mark), bytes.data() + at, sizeof mark);
  return mark;
}

void check_mark(const fs::path& path, const PluginMark& mark) {
  if (mark.api != kPluginApi) {
    fail({.place = path.string(),
          .found = fmt::format("a plugin for version {} of the interface", mark.api),
          .expected = fmt::format("version {}", kPluginApi),
          .action = "build it against this kvarena"});
  }
  const std::string fingerprint = text_of(mark.fingerprint);
  if (fingerprint == KVARENA_PLUGIN_FINGERPRINT) return;
  fail({.place = path.string(),
        .found = fmt::format("a plugin built against other headers, another compiler or libtorch ({})",
                             fingerprint.substr(0, 12)),
        .expected = fmt::format("those of this program ({})", std::string(KVARENA_PLUGIN_FINGERPRINT).substr(0, 12)),
        .action = "build it against this kvarena"});
}

/// dlopen, without its declaration that nothing is thrown: what a library throws while it is loaded passes through, and
/// a caller that trusts the declaration ends the program.
void* open_that_may_throw(const fs::path& path) {
  void* (*volatile open)(const char*, int) = ::dlopen;
  return open(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // RTLD_NOW: a missing symbol is noticed here, not in a sample
}

/// Runs the library's registration lines. Returns the names that they add.
std::vector<std::string> open_library(const fs::path& path) {
  const size_t before = detail::registered_methods().size();
  if (open_that_may_throw(path) == nullptr) {
    const std::string reason = ::dlerror();  // "file: undefined symbol: ..."
    const std::string prefix = path.string() + ": ";
    fail({.place = path.string(),
          .found = "a library that cannot be loaded: " +
                   (reason.starts_with(prefix) ? reason.substr(prefix.size()) : reason)});
  }
  const std::span<const MethodEntry> entries = detail::registered_methods();
  std::vector<std::string> names;
  for (const MethodEntry& entry : entries.subspan(before)) {
    const std::string& name = entry.info.name;
    detail::require_free(path, name, entries.first(before + names.size()));
    names.push_back(name);
  }
  if (names.empty()) {
    fail({.place = path.string(),
          .found = "no method in it",
          .expected = "at least one registered by KVARENA_METHOD, KVARENA_SCORER or the like"});
  }
  return names;
}

/// Makes each method once and asks for its settings.
void try_methods(const fs::path& path, const std::vector<std::string>& names) {
  const auto registered = detail::registered_methods();
  // A copy: making a method may look at the registry, which ends the list.
  for (const MethodEntry& entry : std::vector<MethodEntry>(registered.begin(), registered.end())) {
    if (std::ranges::find(names, entry.info.name) == names.end()) continue;
    const std::string place = fmt::format("{}: method \"{}\"", path.string(), entry.info.name);
    try {
      (void)entry.parameters();
    } catch (const std::exception& error) {
      fail({.place = place, .found = fmt::format("that it throws while it is made: {}", error.what())});
    } catch (...) {
      fail({.place = place, .found = "that it throws while it is made, and no std::exception"});
    }
  }
}

/// The message of an exception that `work` throws, for the user; "" when it throws none.
std::string message_of(const fs::path& path, const std::function<void()>& work) {
  const auto thrown = [&](const std::string& what) {
    return describe({.place = path.string(), .found = "a library that throws while it is loaded: " + what});
  };
  try {
    work();
    return "";
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return thrown(error.what());
  } catch (...) {
    return thrown("something that is no std::exception");
  }
}

/// How a child ended, and the first of what it wrote.
struct Trial {
  std::optional<int> status;  // as waitpid gives it; none: it was still at work after kPatience and was ended
  std::string text;
};

/// Reads what a pipe holds now, and keeps up to kLongest bytes of all.
void drain(int pipe, std::string& text) {
  std::array<char, 1 << 16> piece{};  // as much as a pipe holds
  const ssize_t length = ::read(pipe, piece.data(), piece.size());
  if (length > 0) text.append(piece.data(), std::min(static_cast<size_t>(length), kLongest - text.size()));
}

/// Waits for a child that leads a process group and writes into `pipe`, which does not block; ends what is left of the
/// group.
Trial watch(pid_t child, int pipe) {
  Trial trial;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end && !trial.status) {
    pollfd readable{.fd = pipe, .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, 20);
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) trial.status = status;
    drain(pipe, trial.text);
  }
  ::kill(-child, SIGKILL);
  if (!trial.status) ::waitpid(child, nullptr, 0);
  return trial;
}

/// "boom ..." of "boom\nboom\nboom".
std::string first_line(const std::string& text) {
  const std::string line = text.substr(0, std::min(text.find('\n'), kLongestLine));
  return line.size() == text.size() ? line : line + " ...";
}

/// Runs `work` in a child process. Throws UserError with what it threw, or with how the child ended and what it wrote.
void try_out(const fs::path& path, const std::function<void()>& work) {
  std::array<int, 2> written{};
  if (::pipe2(written.data(), O_CLOEXEC) != 0) fail({.place = path.string(), .found = std::strerror(errno)});
  ::fcntl(written[0], F_SETFL, O_NONBLOCK);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    ::dup2(written[1], STDOUT_FILENO);
    ::dup2(written[1], STDERR_FILENO);
    const std::string message = message_of(path, work);
    (void)!::write(written[1], message.data(), message.size());
    ::_exit(message.empty() ? kSound : kTold);
  }
  ::close(written[1]);
  if (child < 0) {
    ::close(written[0]);
    fail({.place = path.string(), .found = fmt::format("no process to try it out: {}", std::strerror(errno))});
  }
  ::setpgid(child, child);  // here too: whoever comes first
  Trial trial = watch(child, written[0]);
  ::close(written[0]);
  while (trial.text.ends_with('\n')) trial.text.pop_back();
  const std::string said = trial.text.empty() ? "" : ", it wrote: " + first_line(trial.text);
  if (!trial.status) {
    fail({.place = path.string(),
          .found = fmt::format("a library that is not loaded after {} s{}", kPatience.count(), said),
          .expected = "constructors and parameters() that return at once"});
  }
  const int status = *trial.status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSound) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTold) throw UserError(trial.text);
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                              : fmt::format("exit code {}", WEXITSTATUS(status));
  fail({.place = path.string(),
        .found = fmt::format("a library that ends the program while it is loaded, by {}{}", how, said)});
}

}  // namespace

void load_plugins(std::span<const fs::path> paths) {
  for (const fs::path& given : paths) {
    const fs::path path = existing(given);
    if (std::ranges::any_of(plugins(), [&](const LoadedPlugin& plugin) { return plugin.path == path; })) continue;
    const std::string bytes = read_file(path);
    if (path.extension() == ".py") {
      plugins().push_back(load_python_plugin(path, sha256(bytes)));
      continue;
    }
    const PluginMark mark = read_mark(path, bytes);
    check_mark(path, mark);
    try_out(path, [&] { try_methods(path, open_library(path)); });
    plugins().push_back({.path = path,
                         .name = text_of(mark.name),
                         .version = text_of(mark.version),
                         .sha256 = sha256(bytes),
                         .methods = open_library(path)});
  }
}

std::vector<fs::path> plugins_of_environment() {
  std::vector<fs::path> paths;
  const char* listed = std::getenv("KVARENA_PLUGINS");
  std::istringstream names(listed == nullptr ? "" : listed);
  for (std::string name; std::getline(names, name, ':');) {
    if (!name.empty()) paths.emplace_back(name);
  }
  return paths;
}

const std::vector<LoadedPlugin>& loaded_plugins() { return plugins(); }

}  // namespace kvarena
