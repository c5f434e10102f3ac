#pragma once
// Methods as they are written on the command line.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvarena::cli {

/// A method's settings as a config has them, from JSON or from the short form:
///
///   {"name": "pick", "keep": 0.25}      itself
///   pick                                {"name": "pick"}
///   pick:keep=0.25,window=32            {"name": "pick", "keep": 0.25, "window": 32}
///   check:drafter=(pick:keep=0.25)      {"name": "check", "drafter": {"name": "pick", "keep": 0.25}}
///   pick:layers=[1,2],pool=max          {"name": "pick", "layers": [1, 2], "pool": "max"}
///
/// A value is a number, true, false, null, a list, a "quoted" string, a nested method in parentheses, and otherwise a
/// string. Whether the method and its settings exist is make_method's to say. Throws UserError that starts with
/// `place` and shows where in `text` it stopped.
[[nodiscard]] nlohmann::json parse_method_spec(const std::string& text, const std::string& place);

}  // namespace kvarena::cli
