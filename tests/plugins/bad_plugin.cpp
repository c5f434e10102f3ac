// One source, several libraries: KVARENA_BAD says what is wrong with each.

#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "harness/method/plugin.h"
#include "harness/method/registry.h"

namespace kvarena {
void nobody_defines_this();
}

namespace {

constexpr std::string_view kBad = KVARENA_BAD;

/// Runs while the library is loaded.
[[maybe_unused]] const bool loaded = [] {
  if (kBad == "throws_while_loaded") throw std::runtime_error("thrown while it is loaded");
  return true;
}();

class Idle final : public kvarena::Method {
 public:
  Idle() {
    if (kBad == "throwing_constructor") throw std::runtime_error("no licence found");
    if (kBad == "leaving_constructor") ::_exit(0);
    if (kBad == "leaves_a_child" && ::fork() == 0) {
      ::sleep(15);
      ::_exit(0);
    }
    while (kBad == "endless_constructor") std::puts("and so on");
  }
  void parameters(kvarena::ParameterVisitor&) override {
    if (kBad == "crashing_parameters") {
      std::fputs("about to crash\n", stderr);
      __builtin_trap();
    }
  }
};

#if !defined(KVARENA_BAD_EMPTY)
KVARENA_METHOD(Idle, kvarena::Family::compression,
               {.name = KVARENA_BAD_NAME, .title = "Idle", .summary = "Does nothing.", .paper = "none"});
#endif

}  // namespace

#if defined(KVARENA_BAD_SYMBOL)
void call_it() { kvarena::nobody_defines_this(); }
#endif

#if defined(KVARENA_BAD_API) || defined(KVARENA_BAD_BUILD)
constexpr kvarena::PluginMark changed(kvarena::PluginMark mark) {
#if defined(KVARENA_BAD_API)
  mark.api += 1;
#else
  mark.fingerprint[0] = 'z';
#endif
  return mark;
}
extern "C" [[gnu::visibility("default")]] const kvarena::PluginMark kvarena_plugin;
constexpr kvarena::PluginMark kvarena_plugin = changed(kvarena::detail::plugin_mark("bad", "1"));
#elif !defined(KVARENA_BAD_MARK)
KVARENA_PLUGIN("bad", "1");
#endif
