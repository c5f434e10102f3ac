#pragma once
// Expressions and statements of a parsed program, and the names that they see.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/model/jinja/value.h"

namespace kvarena::jinja {

/// Names bound in a loop's body, a macro or the program, and those around it.
class Scope {
 public:
  explicit Scope(Scope* outer = nullptr) : outer_(outer) {}

  [[nodiscard]] Value get(const std::string& name) const;
  void set(const std::string& name, Value value);

 private:
  Scope* outer_;
  Names names_;
};

struct Expression {
  explicit Expression(int at) : line(at) {}
  virtual ~Expression() = default;
  [[nodiscard]] virtual Value eval(Scope& scope) const = 0;
  int line;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

/// Continuation after a statement: the next one, the loop's next turn, the loop's end.
enum class Flow : uint8_t { on, next_turn, leave };

struct Statement {
  explicit Statement(int at) : line(at) {}
  virtual ~Statement() = default;
  virtual Flow run(Scope& scope, std::string& out) const = 0;
  int line;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Block = std::vector<StatementPtr>;

/// Runs statements one after the other until one leaves.
Flow run_block(const Block& block, Scope& scope, std::string& out);

// Expressions.

struct Literal final : Expression {
  Literal(int at, Value what) : Expression(at), value(std::move(what)) {}
  [[nodiscard]] Value eval(Scope& scope) const override;
  Value value;
};

struct Name final : Expression {
  Name(int at, std::string what) : Expression(at), name(std::move(what)) {}
  [[nodiscard]] Value eval(Scope& scope) const override;
  std::string name;
};

struct ListDisplay final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

/// value.name, where methods come first, or value[key], where entries do.
struct Member final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr of, key;
  bool dotted = false;
};

/// value[start:stop:step]; absent parts are null.
struct Slice final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr of, start, stop, step;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  [[nodiscard]] Arguments eval(Scope& scope) const;
};

struct Call final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr callee;
  CallArguments arguments;
};

/// value | name(arguments)
struct Filter final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr of;
  std::string name;
  CallArguments arguments;
};

/// value is name(arguments), or is not
struct Test final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr of;
  std::string name;
  CallArguments arguments;
  bool negated = false;
};

/// Operators: "not", "-", "+" of one operand; "and", "or", "in", "not in", arithmetic, "~" and comparisons of two.
struct Operation final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  std::string sign;
  ExpressionPtr left;  // null where there is one operand
  ExpressionPtr right;
};

/// first a first b second c: first holds of a and b, second of b and c.
struct Comparison final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
};

struct Conditional final : Expression {
  using Expression::Expression;
  [[nodiscard]] Value eval(Scope& scope) const override;
  ExpressionPtr condition, then, otherwise;  // `otherwise` may be null
};

// Statements.

struct Text final : Statement {
  Text(int at, std::string what) : Statement(at), text(std::move(what)) {}
  Flow run(Scope& scope, std::string& out) const override;
  std::string text;
};

struct Print final : Statement {
  Print(int at, ExpressionPtr what) : Statement(at), value(std::move(what)) {}
  Flow run(Scope& scope, std::string& out) const override;
  ExpressionPtr value;
};

struct If final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};

struct For final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::vector<std::string> targets;
  ExpressionPtr items;
  ExpressionPtr condition;  // may be null
  Block body, otherwise;
};

/// Binds names, or sets a member of a namespace; to a value, or to the text that a block writes.
struct Set final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::vector<std::string> targets;
  std::string member;                                          // of targets[0]; empty: none
  ExpressionPtr value;                                         // null: the block's text
  std::vector<std::pair<std::string, CallArguments>> filters;  // of the block's text
  Block body;
};

struct Macro final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with a default, or null
  Block body;
};

/// {% call(arguments) macro(...) %} body {% endcall %}: the macro sees the body as caller().
struct CallBlock final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::unique_ptr<Call> call;
  Macro caller{0};
};

/// {% filter name %} body {% endfilter %}
struct FilterBlock final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::vector<std::pair<std::string, CallArguments>> filters;
  Block body;
};

/// A body with names of its own: {% with a = 1 %}, and {% generation %}, which marks answers for training.
struct With final : Statement {
  using Statement::Statement;
  Flow run(Scope& scope, std::string& out) const override;
  std::vector<std::pair<std::string, ExpressionPtr>> names;
  Block body;
};

struct Jump final : Statement {
  Jump(int at, Flow where) : Statement(at), flow(where) {}
  Flow run(Scope& scope, std::string& out) const override;
  Flow flow;
};

}  // namespace kvarena::jinja
