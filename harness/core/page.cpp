#include "harness/core/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/terminal.h"

namespace kvarena {
namespace {

std::string examples_text(const Rows& rows, size_t width) {
  size_t longest = 0;
  std::string below;
  for (const auto& row : rows) {
    longest = std::max(longest, display_width(row.at(0)));
    below += fmt::format("  {}\n      {}\n", row.at(0), wrap(row.at(1), width, 6, 6));
  }
  return longest > width / 2 ? below : columns(rows, width);
}

}  // namespace

struct Page::Layout {
  size_t width;
  bool with_bold;

  std::string operator()(const Text& part) const { return part.text; }
  std::string operator()(const Bold& part) const {
    return with_bold ? fmt::format("\033[1m{}\033[0m", part.text) : part.text;
  }
  std::string operator()(const Wrapped& part) const { return wrap(part.text, width, part.indent, part.used); }
  std::string operator()(const Columns& part) const { return kvarena::columns(part.rows, width); }
  std::string operator()(const Examples& part) const { return examples_text(part.rows, width); }
};

Page& Page::text(std::string_view text) {
  parts_.emplace_back(Text{std::string(text)});
  return *this;
}

Page& Page::bold(std::string_view text) {
  parts_.emplace_back(Bold{std::string(text)});
  return *this;
}

Page& Page::wrapped(std::string_view text, size_t indent, size_t used) {
  parts_.emplace_back(Wrapped{std::string(text), indent, used});
  return *this;
}

Page& Page::columns(Rows rows) {
  parts_.emplace_back(Columns{std::move(rows)});
  return *this;
}

Page& Page::examples(Rows rows) {
  parts_.emplace_back(Examples{std::move(rows)});
  return *this;
}

Page& Page::append(const Page& page) {
  parts_.insert(parts_.end(), page.parts_.begin(), page.parts_.end());
  return *this;
}

std::string Page::layout(size_t width, bool with_bold) const {
  std::string text;
  for (const auto& part : parts_) text += std::visit(Layout{width, with_bold}, part);
  return text;
}

void print(const Page& page) { print(page.layout(line_width(stdout), colours(stdout))); }

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    fail({.place = "standard output", .found = std::strerror(errno)});
}

void flush_output() {
  if (std::fflush(stdout) != 0) fail({.place = "standard output", .found = std::strerror(errno)});
}

}  // namespace kvarena
