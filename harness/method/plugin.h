#pragma once
// The line that makes a shared library a plugin, in one of its sources, beside methods registered as in methods/.
//
//   KVARENA_PLUGIN("mine", "1.2");
//
// `kvarena --plugin libmine.so methods` lists what it registers. A plugin is compiled against the headers of the very
// program that loads it (find_package(kvarena), kvarena_add_plugin), and takes its functions from it.

#include <array>
#include <cstdint>
#include <string_view>

#include "harness/method/plugin_fingerprint.h"

namespace kvarena {

/// Version of the mark below and of how plugins are loaded; the fingerprint covers what headers declare.
inline constexpr int32_t kPluginApi = 1;

/// The mark of a plugin: constant bytes in the library's file, which are read before any line of the library runs.
struct PluginMark {
  std::array<char, 32> magic{};
  int32_t api = 0;
  std::array<char, 72> fingerprint{};  // of headers, compiler and libtorch
  std::array<char, 64> name{};
  std::array<char, 32> version{};
};

/// Spelt in two parts, so that programs that look for the mark do not hold it.
inline constexpr std::array<std::string_view, 2> kPluginMagic = {"kvarena plugin ", "mark 7f41c09e"};

namespace detail {

template <size_t N>
constexpr void put(std::array<char, N>& place, std::string_view text, size_t from = 0) {
  for (size_t i = 0; i < text.size(); ++i) place.at(from + i) = text[i];  // too long a text does not compile
}

constexpr PluginMark plugin_mark(std::string_view name, std::string_view version) {
  PluginMark mark;
  put(mark.magic, kPluginMagic[0]);
  put(mark.magic, kPluginMagic[1], kPluginMagic[0].size());
  mark.api = kPluginApi;
  put(mark.fingerprint, KVARENA_PLUGIN_FINGERPRINT);
  put(mark.name, name);
  put(mark.version, version);
  return mark;
}

}  // namespace detail

/// Marks the plugin; used once in it. Names have up to 63 characters, versions up to 31.
#define KVARENA_PLUGIN(name, version)                                                   \
  extern "C" [[gnu::visibility("default")]] const ::kvarena::PluginMark kvarena_plugin; \
  constexpr ::kvarena::PluginMark kvarena_plugin = ::kvarena::detail::plugin_mark(name, version)

}  // namespace kvarena
