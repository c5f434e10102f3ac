#pragma once
// How numbers are printed in tables and on axes.

#include <string>

namespace kvarena::reports {

/// `fixed` prints `digits` places; `significant` prints `digits` significant digits; `bytes` picks B, KiB, MiB, GiB;
/// `factor` is `fixed` with a multiplication sign behind.
enum class NumberStyle { fixed, significant, bytes, factor };

struct NumberFormat {
  NumberStyle style = NumberStyle::fixed;
  int digits = 1;

  bool operator==(const NumberFormat&) const = default;
};

/// For people: "71.4", "-3.2" (with the sign U+2212), "12.5 MiB", "4.3×". "n/a" for what is no number, "∞" for
/// infinity.
[[nodiscard]] std::string format_number(double value, NumberFormat format);

/// As format_number, always with a sign: "+0.4", "-3.2" (U+2212), "0.0" when it rounds to nothing.
[[nodiscard]] std::string format_signed(double value, NumberFormat format);

/// For programs: the shortest decimal text that reads back as the same double; "" for what is no finite number.
[[nodiscard]] std::string full_precision(double value);

}  // namespace kvarena::reports
