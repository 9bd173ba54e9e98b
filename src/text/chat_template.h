#pragma once
// Chat templates: the Jinja text that ships with a model and turns messages into a prompt.
//
// Goals: to render what Python's jinja2 renders when `transformers` sets it up (immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, its own tojson, raise_exception,
// strftime_now); to be safe with hostile templates and variables (no I/O, bounded work and memory).
// Non-goals: loading other templates (include, import and extends fail when they are executed).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// The bounds of one rendering. Reaching one throws Error(kLimit).
struct TemplateLimits {
  std::int64_t max_steps = 5'000'000;   // expressions, statements, items; one per 64 bytes of text
  std::size_t max_output = 16u << 20;   // bytes of the output, and of any string
  std::size_t max_memory = 256u << 20;  // bytes of all values that are made
  std::size_t max_source = 1u << 20;    // bytes of the template
  int max_nesting = 200;                // levels of expressions and statements in the source
  int max_calls = 200;                  // macros and recursive loops inside each other
  std::uint16_t max_value_depth = 400;  // levels of lists inside lists
};

class ChatTemplate {
 public:
  // Parses `source`; `name` stands for it in messages. Throws Error: kInvalidFile with the line of
  // the mistake, or if it is not UTF-8; kLimit if it is too long or nested too deeply.
  ChatTemplate(std::string_view source, std::string_view name, TemplateLimits limits = {});
  ChatTemplate(ChatTemplate&& other) noexcept;
  ChatTemplate& operator=(ChatTemplate&& other) noexcept;
  ~ChatTemplate();

  // The text that the template was parsed from.
  const std::string& source() const;

  // Renders the template. `variables` is an object, whose order of keys is kept. `now` is the time
  // that strftime_now sees, in Unix seconds (UTC); empty means the clock. May be called from
  // several threads at once. Throws Error: kInvalidArgument where Python would raise, with the
  // message of raise_exception unchanged, and kLimit at a bound.
  std::string render(const OrderedJson& variables, std::optional<std::int64_t> now) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace bl
