#include "harness/cli/page_output.h"

#include <fmt/format.h>

#include "harness/core/files.h"
#include "harness/core/page.h"

namespace kvarena::cli {

void PageOutput::declare(OptionSet& o, const char* otherwise) {
  o.option("out", "FILE", out).help("where to write").default_text(otherwise);
  o.option("format", "FORMAT", format).help("html, md, tex or csv").default_text("by the ending of --out, else md");
}

reports::Format PageOutput::chosen() const {
  return reports::parse_format(!format.empty() ? format : out ? out->string() : "md");
}

void PageOutput::write(const std::string& text) const {
  if (!out) return print(text);
  write_file(*out, text);
  fmt::print(stderr, "wrote {}\n", out->string());
}

}  // namespace kvarena::cli
