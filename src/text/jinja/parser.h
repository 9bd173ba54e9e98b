#pragma once
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/arena.h"
#include "text/jinja/ast.h"

namespace bl::jinja {

// Names with a special meaning; they come first in every table of names.
constexpr NameId kNameLoop = 0;
constexpr NameId kNameVarargs = 1;
constexpr NameId kNameKwargs = 2;
constexpr NameId kNameCaller = 3;
constexpr NameId kNameSelf = 4;

struct ParsedTemplate {
  Body body;
  std::span<const NameId> unset;  // the template's own variables, as in ScopeInfo::unset
  std::unordered_map<std::string_view, NameId> name_ids;
  std::vector<std::string_view> names;  // by NameId
  std::map<std::string_view, const BlockStatement*> blocks;
};

// Parses a template. `source` must be valid UTF-8; everything that is made lives in `arena`. Throws
// Error: kInvalidFile, whose message starts with `name` and the line, and kLimit if the source is
// nested too deeply.
ParsedTemplate parse_template(std::string_view source, std::string_view name,
                              const TemplateLimits& limits, Arena& arena);

}  // namespace bl::jinja
