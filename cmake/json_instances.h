// Declarations of nlohmann/json's templates that json_instances.cpp instantiates once: with sanitizers they take a
// third of the time of every file that uses them. Part of the precompiled headers; a file without it generates its own.
#pragma once

// GCC instantiates what inline functions of a precompiled header call anew in every source: for the body of the literal
// "..."_json that is the whole parser, 1.2 s. As a template, which nothing calls, it costs nothing; the literal is left
// without a definition.
#define _json(text, size) \
  _json(text, size);      \
  template <class = void> \
  nlohmann::json parsed_literal(text, size)
#include <nlohmann/json.hpp>
#undef _json

#include <string>
#include <vector>

#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11  // of whose parser the names below are

#ifndef KVARENA_JSON_INSTANCE
#define KVARENA_JSON_INSTANCE extern template
#endif

KVARENA_JSON_INSTANCE class nlohmann::basic_json<>;
KVARENA_JSON_INSTANCE class std::vector<nlohmann::json>;

namespace nlohmann::detail {

using DomParser = json_sax_dom_parser<json>;
using CallbackParser = json_sax_dom_callback_parser<json>;
using Characters = iterator_input_adapter<const char*>;
using StringCharacters = iterator_input_adapter<std::string::const_iterator>;

KVARENA_JSON_INSTANCE class serializer<json>;
KVARENA_JSON_INSTANCE class json_sax_dom_parser<json>;
KVARENA_JSON_INSTANCE class json_sax_dom_callback_parser<json>;
KVARENA_JSON_INSTANCE class lexer<json, Characters>;
KVARENA_JSON_INSTANCE class lexer<json, StringCharacters>;
KVARENA_JSON_INSTANCE class parser<json, Characters>;
KVARENA_JSON_INSTANCE class parser<json, StringCharacters>;
KVARENA_JSON_INSTANCE bool parser<json, Characters>::sax_parse_internal(DomParser*);
KVARENA_JSON_INSTANCE bool parser<json, Characters>::sax_parse_internal(CallbackParser*);
KVARENA_JSON_INSTANCE bool parser<json, StringCharacters>::sax_parse_internal(DomParser*);
KVARENA_JSON_INSTANCE bool parser<json, StringCharacters>::sax_parse_internal(CallbackParser*);

}  // namespace nlohmann::detail

#endif
