#include "harness/method/plugins.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/method/plugin.h"
#include "harness/method/registration.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

constexpr int kTold = 3;  // exit code of a child that has written what is wrong

std::vector<LoadedPlugin>& plugins() {
  static std::vector<LoadedPlugin> loaded;
  return loaded;
}

fs::path existing(const fs::path& path) {
  std::error_code absent;
  fs::path resolved = fs::canonical(path, absent);
  if (absent || !fs::is_regular_file(resolved)) {
    fail({.place = path.string(), .found = "no file", .expected = "a shared library made for --plugin"});
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

/// Runs the library's registration lines. Returns the names that they add.
std::vector<std::string> open_library(const fs::path& path) {
  const size_t before = detail::registered_methods().size();
  // RTLD_NOW: a missing symbol is noticed here, not in the middle of a sample.
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
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
    const auto same = [&](const MethodEntry& other) { return other.info.name == name; };
    if (std::ranges::any_of(entries.first(before + names.size()), same)) {
      fail({.place = path.string(),
            .found = fmt::format("a method \"{}\", a name that is taken", name),
            .expected = "names that no other method has"});
    }
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
  } catch (const std::exception& error) {  // passes through dlopen, which declares that nothing does
    return thrown(error.what());
  } catch (...) {
    return thrown("something that is no std::exception");
  }
}

/// Runs `work` in a child process. Throws UserError with what it threw, or with how the child ended and what it wrote.
void try_out(const fs::path& path, const std::function<void()>& work) {
  std::array<int, 2> written{};
  if (::pipe(written.data()) != 0) fail({.place = path.string(), .found = std::strerror(errno)});
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(written[1], STDOUT_FILENO);
    ::dup2(written[1], STDERR_FILENO);
    const std::string message = message_of(path, work);
    (void)!::write(written[1], message.data(), message.size());
    ::_exit(message.empty() ? 0 : kTold);
  }
  ::close(written[1]);
  if (child < 0) {
    ::close(written[0]);
    fail({.place = path.string(), .found = fmt::format("no process to try it out: {}", std::strerror(errno))});
  }
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t length = 0; (length = ::read(written[0], piece.data(), piece.size())) != 0;) {
    if (length > 0) text.append(piece.data(), static_cast<size_t>(length));
    if (length < 0 && errno != EINTR) break;
  }
  ::close(written[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTold) throw UserError(text);
  while (text.ends_with('\n')) text.pop_back();
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                              : fmt::format("exit code {}", WEXITSTATUS(status));
  fail({.place = path.string(),
        .found = fmt::format("a library that ends the program while it is loaded, by {}{}{}", how,
                             text.empty() ? "" : ": ", text)});
}

}  // namespace

void load_plugins(std::span<const fs::path> paths) {
  for (const fs::path& given : paths) {
    const fs::path path = existing(given);
    if (std::ranges::any_of(plugins(), [&](const LoadedPlugin& plugin) { return plugin.path == path; })) continue;
    const std::string bytes = read_file(path);
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

const std::vector<LoadedPlugin>& loaded_plugins() { return plugins(); }

}  // namespace kvarena
