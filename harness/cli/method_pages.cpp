#include "harness/cli/method_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cli/registry_text.h"
#include "harness/core/markdown.h"
#include "harness/method/budget_rule.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr const char* kMade = "<!-- Written by `kvarena methods --pages docs/methods`; a test compares. -->\n";

const char* purpose(Family family) {
  switch (family) {
    case Family::reference: return "What the others are compared with.";
    case Family::compression:
      return "Fewer entries, merged entries, or fewer bits an entry. A budget is `keep` (a share), `tokens` (entries "
             "of "
             "each head) or `bytes`; what a method really holds is counted where it is allocated.";
    case Family::retrieval:
      return "The whole cache stays, on some tier; each step attends to the few entries that matter. Resident bytes "
             "and "
             "bytes moved are counted apart.";
    case Family::prefill:
      return "The prompt's queries attend to some of the entries before them, so that the first token comes sooner. "
             "The "
             "whole cache stays, and what follows the prompt attends to all of it.";
    case Family::reuse:
      return "Entries computed for an earlier prompt serve this one, at other positions, with some of them computed "
             "anew. Judged by what is recomputed, time to first token and the answers.";
    case Family::eviction:
      return "Which stored contexts lie in memory, on disk or far away, and in which form. These methods place caches "
             "while requests arrive; in a quality cell they have nothing to do and are inactive.";
    case Family::verification:
      return "Something cheap drafts tokens, the full cache accepts or corrects them. The answer is the full cache's, "
             "bit for bit under greedy decoding; what differs is the work.";
  }
  return "";
}

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

/// "arXiv:2404.14469, section 4" with the number as a link.
std::string linked(const std::string& paper) {
  constexpr std::string_view kArchive = "arXiv:";
  const size_t at = paper.find(kArchive);
  if (at == std::string::npos) return paper;
  const size_t first = at + kArchive.size();
  const size_t last = std::min(paper.find_first_not_of("0123456789.", first), paper.size());
  const std::string number = paper.substr(first, last - first);
  return fmt::format("{}[{}{}](https://arxiv.org/abs/{}){}", paper.substr(0, at), kArchive, number, number,
                     paper.substr(last));
}

std::string settings_table(const std::vector<ParameterInfo>& parameters) {
  std::string text = markdown_row({"setting", "is", "means"}) + markdown_row({"---", "---", "---"});
  for (const ParameterInfo& info : parameters) {
    text += markdown_row({fmt::format("`{}`", info.name), cell(describe(info)), cell(info.doc)});
  }
  return text;
}

std::string method_section(const MethodEntry& entry) {
  const json example = example_settings(entry);
  std::string text = fmt::format("\n## {}\n\n`{}`: {}\n\n", entry.info.title, entry.info.name, entry.info.summary);
  if (!entry.info.paper.empty()) text += fmt::format("- Paper: {}\n", linked(entry.info.paper));
  const std::vector<std::string> needs = needs_of(entry);
  if (!needs.empty()) text += fmt::format("- Needs: {}\n", fmt::join(needs, ", "));
  if (!example.is_null()) text += fmt::format("- In a config: `{}`\n", config_form(example));
  const std::vector<ParameterInfo> parameters = entry.parameters();
  text += parameters.empty() ? "\nNo settings.\n" : fmt::format("\n{}", settings_table(parameters));
  return text;
}

std::vector<const MethodEntry*> members(Family family) {
  std::vector<const MethodEntry*> list;
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == family) list.push_back(&entry);
  }
  return list;
}

/// The anchor that Markdown viewers give a heading.
std::string anchor(const std::string& heading) {
  std::string text;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      text += '-';
    }
  }
  return text;
}

std::string budget_rules_section() {
  std::string text =
      "\n## Budget rules\n\n`budget_rule` divides a budget among layers and heads, under any method that has one.\n";
  for (const BudgetRuleInfo& rule : budget_rules()) {
    text += fmt::format("\n`{}`: {}\n", rule.name, rule.summary);
    if (!rule.parameters.empty()) text += fmt::format("\n{}", settings_table(rule.parameters));
  }
  return text;
}

}  // namespace

std::string family_page(Family family) {
  std::string text = fmt::format("{}# Methods: {}\n\n{}\n\n", kMade, to_string(family), purpose(family));
  text += markdown_row({"method", "what it does"}) + markdown_row({"---", "---"});
  const auto entries = members(family);
  for (const MethodEntry* entry : entries) {
    const std::string link = fmt::format("[{}](#{})", entry->info.name, anchor(entry->info.title));
    text += markdown_row({link, cell(entry->info.summary)});
  }
  for (const MethodEntry* entry : entries) text += method_section(*entry);
  if (family == Family::compression) text += budget_rules_section();
  return text;
}

std::string families_page() {
  std::string text = fmt::format("{}# Methods\n\n| family | methods | |\n| --- | ---: | --- |\n", kMade);
  for (const Family family : kFamilies) {
    const std::string link = fmt::format("[{0}]({0}.md)", to_string(family));
    text += markdown_row({link, fmt::format("{}", members(family).size()), purpose(family)});
  }
  return text;
}

}  // namespace kvarena::cli
