#include <fmt/format.h>
#include <fmt/ranges.h>

#include "metrics/algorithms/python_ast.h"

namespace kvarena::metrics::python {
namespace {

std::string repr_string(const std::string& text) {
  const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (c == quote) out += '\\';
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + quote;
}

std::string join(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ", ")); }

std::vector<std::string> unparse_all(const std::vector<Node>& nodes, size_t from = 0) {
  std::vector<std::string> parts;
  for (size_t i = from; i < nodes.size(); ++i) parts.push_back(unparse(nodes[i]));
  return parts;
}

std::string unparse_call(const Node& node) {
  std::vector<std::string> parts = unparse_all(node.children, 1);
  for (size_t i = 0; i < node.key_names.size(); ++i) {
    parts.push_back(fmt::format("{}={}", node.key_names[i], unparse(node.key_values[i])));
  }
  return fmt::format("{}({})", unparse(node.children[0]), join(parts));
}

std::string unparse_dict(const Node& node) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    parts.push_back(fmt::format("{}: {}", unparse(node.children[i]), unparse(node.children[i + 1])));
  }
  return fmt::format("{{{}}}", join(parts));
}

std::string unparse_tuple(const Node& node) {
  return fmt::format("({}{})", join(unparse_all(node.children)), node.children.size() == 1 ? "," : "");
}

std::string operand(const Node& node) {
  return node.kind == Node::Kind::binary ? fmt::format("({})", unparse(node)) : unparse(node);
}

}  // namespace

std::string repr(const PythonValue& value) {
  switch (value.type) {
    case PythonValue::Type::none: return "None";
    case PythonValue::Type::boolean: return value.boolean ? "True" : "False";
    case PythonValue::Type::integer:
      return value.big ? fmt::format("{:.0f}", value.real) : fmt::format("{}", value.integer);
    case PythonValue::Type::real: return fmt::format("{}", value.real);
    case PythonValue::Type::string: return repr_string(value.string);
    case PythonValue::Type::list:
    case PythonValue::Type::tuple:
    case PythonValue::Type::dict: break;
  }
  return to_json(value).dump();
}

std::string unparse(const Node& node) {
  switch (node.kind) {
    case Node::Kind::constant: return repr(node.value);
    case Node::Kind::ellipsis: return "...";
    case Node::Kind::name: return node.text;
    case Node::Kind::attribute: return fmt::format("{}.{}", unparse(node.children[0]), node.text);
    case Node::Kind::call: return unparse_call(node);
    case Node::Kind::list: return fmt::format("[{}]", join(unparse_all(node.children)));
    case Node::Kind::tuple: return unparse_tuple(node);
    case Node::Kind::dict: return unparse_dict(node);
    case Node::Kind::unary: return fmt::format("{}{}", node.text, operand(node.children[0]));
    case Node::Kind::binary:
      return fmt::format("{} {} {}", operand(node.children[0]), node.text, operand(node.children[1]));
    case Node::Kind::subscript: break;
  }
  const Node& index = node.children[1];
  const bool bare = index.kind == Node::Kind::tuple && !index.children.empty();
  const std::string inner = unparse(index);
  return fmt::format("{}[{}]", unparse(node.children[0]), bare ? inner.substr(1, inner.size() - 2) : inner);
}

}  // namespace kvarena::metrics::python
