#include "text/chat_template.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace bl {

struct ChatTemplate::Parsed {
  Parsed(std::string_view text, std::string_view template_name, TemplateLimits bounds)
      : source(text),
        name(template_name),
        limits(bounds),
        arena(bounds.max_memory),
        parsed(jinja::parse_template(source, name, limits, arena)) {}

  std::string source;
  std::string name;
  TemplateLimits limits;
  jinja::Arena arena;
  jinja::ParsedTemplate parsed;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string_view name, TemplateLimits limits) {
  if (source.size() > limits.max_source) {
    fail(ErrorCode::kLimit, "{}: the template has {} bytes, but at most {} are read", name,
         source.size(), limits.max_source);
  }
  if (!is_valid_utf8(source)) {
    fail(ErrorCode::kInvalidFile, "{}: the template is not UTF-8", name);
  }
  parsed_ = std::make_unique<Parsed>(source, name, limits);
}

ChatTemplate::ChatTemplate(ChatTemplate&& other) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&& other) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const { return parsed_->source; }

std::string ChatTemplate::render(const OrderedJson& variables,
                                 std::optional<std::int64_t> now) const {
  if (!variables.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: the variables of a template must be an object",
         parsed_->name);
  }
  jinja::Runtime runtime(parsed_->limits, parsed_->name);
  runtime.now = now;
  return jinja::Interpreter(parsed_->parsed, runtime, variables).run();
}

}  // namespace bl
