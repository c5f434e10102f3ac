// Values of formulas as sympy's parse_expr reads them with implicit multiplication: "2x(x+1)/3" or "sqrt(2)pi".

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <utility>
#include <vector>

#include "metrics/algorithms/math_answers.h"
#include "metrics/unicode/code_points.h"

namespace kvarena::metrics {
namespace {

using Complex = std::complex<long double>;

// A rational (`below` > 0), a number in double precision (`decimal`), or any other, of which `value` alone is known.
struct Number {
  int64_t above = 0;
  int64_t below = 0;
  bool decimal = false;
  Complex value;

  [[nodiscard]] bool rational() const { return below > 0; }
  [[nodiscard]] bool integer() const { return below == 1; }
  [[nodiscard]] bool plain() const { return rational() || decimal; }
  [[nodiscard]] double rounded() const {
    return rational() ? static_cast<double>(above) / static_cast<double>(below) : static_cast<double>(value.real());
  }
};

Number other(Complex value) { return {.value = value}; }
Number decimal(double value) { return {.decimal = true, .value = value}; }

// above / below, reduced; the value alone when the terms overflow.
Number rational(__int128_t above, __int128_t below) {
  const auto value = static_cast<long double>(above) / static_cast<long double>(below);
  if (below < 0) {
    above = -above;
    below = -below;
  }
  __int128_t a = above < 0 ? -above : above;
  for (__int128_t b = below; b != 0;) a = std::exchange(b, a % b);
  if (a > 1) {
    above /= a;
    below /= a;
  }
  const auto fits = [](__int128_t x) { return x == static_cast<int64_t>(x); };
  if (below == 0 || !fits(above) || !fits(below)) return other(value);
  return {.above = static_cast<int64_t>(above), .below = static_cast<int64_t>(below), .value = value};
}

// A number, 'f' for sqrt, 'l' for ln, 'p' for a power, or a mark of the text.
struct Token {
  char kind = 'n';
  Number number = {};
  bool precise = false;  // a decimal number of more digits than a double has
};

// A complex number that hangs on the name and the point.
Number symbol(std::string_view name, int point) {
  uint64_t bits = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(point + 1);
  const auto draw = [&] {
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9;
    bits ^= bits >> 32;
    return static_cast<long double>(bits >> 12) / (1ULL << 50) - 2;
  };
  for (const char c : name) {
    bits += static_cast<unsigned char>(c);
    (void)draw();
  }
  const long double real = draw();
  return other({real, draw()});
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Tokens {
 public:
  Tokens(std::string_view text, int point) : text_(text), point_(point) {}

  /// Nothing for what Python would not read.
  std::optional<std::vector<Token>> read() {
    while (at_ < text_.size() && !failed_) {
      if (is_digit(text_[at_]) || text_[at_] == '.') {
        number();
      } else if (take("//")) {
        failed_ = true;  // a floor in Python
      } else if (take("**") || take("^")) {
        tokens_.push_back({.kind = 'p'});
      } else if (std::string_view("+-*/()!").find(text_[at_]) != std::string_view::npos) {
        tokens_.push_back({.kind = text_[at_++]});
      } else {
        name();
      }
    }
    if (failed_) return std::nullopt;
    return std::move(tokens_);
  }

 private:
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  size_t digits() {
    const size_t from = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - from;
  }

  void number() {
    const size_t begin = at_;
    const size_t whole = digits();
    const bool point = take(".");
    if (point && digits() + whole == 0) failed_ = true;
    const size_t mantissa = at_;
    bool exponent = take("e");
    if (exponent) {
      if (!take("+")) take("-");
      exponent = digits() > 0;
      if (!exponent) at_ = mantissa;
    }
    const std::string text(text_.substr(begin, at_ - begin));
    if (point || exponent) {
      const std::string_view leading = std::string_view(text).substr(0, mantissa - begin);
      const size_t first = std::min(leading.find_first_of("123456789"), leading.size());
      if (std::ranges::count_if(leading.substr(first), is_digit) > 15) {
        tokens_.push_back({.number = other(std::strtold(text.c_str(), nullptr)), .precise = true});
      } else {
        tokens_.push_back({.number = decimal(std::strtod(text.c_str(), nullptr))});
      }
    } else {
      failed_ |= text[0] == '0' && text.find_first_not_of('0') != std::string::npos;
      integer(text);
    }
  }

  void integer(const std::string& digits) {
    const bool exact = digits.size() <= 18;
    tokens_.push_back(
        {.number = exact ? rational(std::stoll(digits), 1) : other(std::strtold(digits.c_str(), nullptr))});
  }

  /// A function, pi, or a product of letters and the integers between them.
  void name() {
    const size_t begin = at_;
    for (size_t next = at_; next < text_.size() && is_word(next_code_point(text_, next));) at_ = next;
    const std::string_view name = text_.substr(begin, at_ - begin);
    constexpr std::array<std::string_view, 10> kOthers = {"", "re", "im", "li", "ff", "rf", "if", "in", "is", "as"};
    failed_ |= std::ranges::find(kOthers, name) != kOthers.end();
    if (name == "sqrt" || name == "ln") {
      tokens_.push_back({.kind = name == "ln" ? 'l' : 'f'});
    } else if (name == "pi") {
      tokens_.push_back({.number = other(std::acos(-1.0L))});
    } else if (name == "mu" || name == "nu" || name == "xi" || name.find('_') != std::string_view::npos) {
      tokens_.push_back({.number = symbol(name, point_)});
    } else {
      letters(name);
    }
  }

  void letters(std::string_view name) {
    for (size_t i = 0; i < name.size();) {
      const size_t from = i;
      if (is_digit(name[i])) {
        while (i < name.size() && is_digit(name[i])) ++i;
        integer(std::string(name.substr(from, i - from)));
      } else {
        next_code_point(name, i);
        tokens_.push_back({.number = symbol(name.substr(from, i - from), point_)});
      }
    }
  }

  std::string_view text_;
  int point_;
  size_t at_ = 0;
  bool failed_ = false;
  std::vector<Token> tokens_;
};

class Formula {
 public:
  /// `rounds`: rationals beside other numbers are rounded to double, as sympy does where a decimal number is.
  Formula(std::vector<Token> tokens, bool rounds) : tokens_(std::move(tokens)), rounds_(rounds) {}

  /// Nothing for what is no formula or has no finite value.
  std::optional<Number> value() {
    const Number result = sum();
    const bool finite = std::isfinite(result.value.real()) && std::isfinite(result.value.imag());
    if (failed_ || at_ != tokens_.size() || !finite) return std::nullopt;
    return result;
  }

  /// Largest absolute value on the way.
  [[nodiscard]] long double largest() const { return largest_; }

 private:
  [[nodiscard]] char peek() const { return at_ < tokens_.size() ? tokens_[at_].kind : '\0'; }

  bool take(char kind) {
    if (peek() != kind) return false;
    ++at_;
    return true;
  }

  Number fail() {
    failed_ = true;
    at_ = tokens_.size();
    return {};
  }

  [[nodiscard]] Complex beside_others(const Number& number) const {
    return rounds_ && number.rational() && !number.integer() ? Complex(number.rounded()) : number.value;
  }

  Number noted(Number number) {
    largest_ = std::max(largest_, std::abs(number.value));
    return number;
  }

  Number add(const Number& a, const Number& b, int sign) {
    if (a.rational() && b.rational()) {
      return noted(rational(__int128_t{a.above} * b.below + sign * __int128_t{b.above} * a.below,
                            __int128_t{a.below} * b.below));
    }
    if (a.plain() && b.plain()) return noted(decimal(a.rounded() + sign * b.rounded()));
    return noted(other(beside_others(a) + static_cast<long double>(sign) * beside_others(b)));
  }

  Number times(const Number& a, const Number& b) {
    if (a.rational() && b.rational()) {
      return noted(rational(__int128_t{a.above} * b.above, __int128_t{a.below} * b.below));
    }
    if (a.plain() && b.plain()) return noted(decimal(a.rounded() * b.rounded()));
    return noted(other(beside_others(a) * beside_others(b)));
  }

  Number inverse(const Number& a) {
    if (a.value == Complex(0)) return fail();
    if (a.rational()) return rational(a.below, a.above);
    if (a.decimal) return decimal(1 / a.rounded());
    return other(Complex(1) / a.value);
  }

  Number power(const Number& base, const Number& exponent) {
    if (exponent.integer() && std::abs(exponent.above) <= 1000 && !base.decimal) {
      Number result = rational(1, 1);
      for (int64_t i = 0; i < std::abs(exponent.above); ++i) result = times(result, base);
      return exponent.above < 0 ? inverse(result) : result;
    }
    const bool real = base.rounded() > 0 || exponent.integer();
    if (base.plain() && exponent.plain() && real && (base.decimal || exponent.decimal)) {
      return noted(decimal(std::pow(base.rounded(), exponent.rounded())));
    }
    if (base.value == Complex(0)) return fail();
    return noted(other(std::pow(base.value, exponent.value)));
  }

  Number root(const Number& of) {
    if (of.decimal && of.rounded() >= 0) return decimal(std::sqrt(of.rounded()));
    const auto whole = [](int64_t x) { return std::llround(std::sqrt(static_cast<double>(x))); };
    if (of.rational() && of.above >= 0 && of.below < (1 << 30) && of.above < (1LL << 50)) {
      const int64_t a = whole(of.above);
      const int64_t b = whole(of.below);
      if (a * a == of.above && b * b == of.below) return rational(a, b);
    }
    return other(std::sqrt(of.value));
  }

  Number sum() {
    Number total = product();
    while (peek() == '+' || peek() == '-') {
      const int sign = tokens_[at_++].kind == '+' ? 1 : -1;
      total = add(total, product(), sign);
    }
    return total;
  }

  Number product() {
    Number total = signed_power();
    for (char next = peek(); next != '\0' && next != '+' && next != '-' && next != ')'; next = peek()) {
      if (take('/')) {
        total = times(total, inverse(signed_power()));
      } else {
        total = times(total, take('*') ? signed_power() : power_of_atom());
      }
    }
    return total;
  }

  Number signed_power() {
    const bool minus = take('-');
    if (!minus && !take('+')) return power_of_atom();
    if (++depth_ > kDeepest) return fail();
    const Number result = signed_power();
    --depth_;
    return minus ? times(rational(-1, 1), result) : result;
  }

  Number power_of_atom() {
    Number result = atom();
    while (take('!')) result = factorial(result);
    if (!take('p')) return result;
    if (++depth_ > kDeepest) return fail();
    const Number exponent = signed_power();
    --depth_;
    return power(result, exponent);
  }

  Number factorial(const Number& of) {
    if (!of.integer() || of.above < 0 || of.above > 20) return fail();
    Number product = rational(1, 1);
    for (int64_t i = 2; i <= of.above; ++i) product = times(product, rational(i, 1));
    return product;
  }

  Number atom() {
    if (peek() == 'n') return noted(tokens_[at_++].number);
    const bool root_of = take('f');
    const bool logarithm = !root_of && take('l');
    if (!take('(') || ++depth_ > kDeepest) return fail();
    const Number inside = sum();
    --depth_;
    if (!take(')')) return fail();
    if (root_of) return noted(root(inside));
    if (!logarithm) return inside;
    return inside.value == Complex(0) ? fail() : noted(other(std::log(inside.value)));
  }

  static constexpr int kDeepest = 200;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  bool rounds_;
  bool failed_ = false;
  int depth_ = 0;
  long double largest_ = 0;
};

}  // namespace

bool formulas_equal(std::string_view a, std::string_view b) {
  const std::string difference = fmt::format("({})-({})", a, b);
  for (int point = 0; point < 4; ++point) {
    auto tokens = Tokens(difference, point).read();
    if (!tokens) return false;
    const bool decimals = std::ranges::any_of(*tokens, [](const Token& each) { return each.number.decimal; });
    const bool precise = std::ranges::any_of(*tokens, &Token::precise);
    Formula formula(std::move(*tokens), decimals);
    const auto value = formula.value();
    if (!value) return false;
    if (value->plain() && value->value != Complex(0)) return false;
    const long double bound = decimals || precise ? 1e-18L : 1e-14L;
    if (std::abs(value->value) > bound * std::max(1.0L, formula.largest())) return false;
  }
  return true;
}

}  // namespace kvarena::metrics
