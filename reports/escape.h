#pragma once
// Text from outside (model output, file names, reasons of failures) made harmless for each format a report is written
// in.

#include <string>
#include <string_view>

namespace kvarena::reports {

/// Valid UTF-8 without characters that could act on a reader's screen: bytes that are no UTF-8, control characters
/// other than tab and newline, and the marks that reverse reading direction become U+FFFD. Every function below does
/// this first.
[[nodiscard]] std::string clean_text(std::string_view text);

/// For HTML text and for attribute values in double quotes: & < > " ' become entities.
[[nodiscard]] std::string escape_html(std::string_view text);

/// For running text and table cells of LaTeX: \ { } $ & # ^ _ ~ % < > | " become commands; newlines become spaces.
/// A minus sign, a multiplication sign and the other signs that our own tables print become math.
[[nodiscard]] std::string escape_latex(std::string_view text);

/// For running text and pipe tables of Markdown: characters that start markup get a backslash, < and & become
/// entities (Markdown passes HTML through), newlines become spaces.
[[nodiscard]] std::string escape_markdown(std::string_view text);

/// One field of RFC 4180: quoted when it holds a comma, a quote or a line break; quotes doubled. Text that a
/// spreadsheet would run as a formula (it starts with = + - @ and is no number) gets an apostrophe in front.
[[nodiscard]] std::string csv_field(std::string_view text);

/// "data:<mime>;base64,..." so that a page can offer a download without a network.
[[nodiscard]] std::string data_url(std::string_view mime, std::string_view content);

/// A name for element ids and file names: lower-case letters, digits and single hyphens, never empty.
[[nodiscard]] std::string slug(std::string_view text);

}  // namespace kvarena::reports
