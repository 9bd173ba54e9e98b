#pragma once
// Chat templates: the Jinja text that ships with a model and turns messages into a prompt.
//
// Goals: what Python's jinja2 renders, set up as `transformers` does (immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, its own tojson, raise_exception,
// strftime_now); safe on hostile templates and variables (no I/O, bounded work and memory).
// Non-goals: loading other templates (include, import, extends fail when they are executed).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Bounds of one rendering; reaching one throws Error(kLimit).
struct TemplateLimits {
  std::int64_t max_steps = 5'000'000;   // expressions, statements, items, 64 bytes of text each
  std::size_t max_output = 16u << 20;   // bytes of the output and of any string
  std::size_t max_memory = 256u << 20;  // bytes of all values made
  std::size_t max_source = 1u << 20;    // bytes of the template
  int max_nesting = 200;                // levels of the source's expressions and statements
  int max_calls = 200;                  // macros and recursive loops inside each other
  std::uint16_t max_value_depth = 400;  // lists inside lists
};

class ChatTemplate {
 public:
  // Parses `source` (UTF-8); `name` stands in messages. Throws Error(kInvalidFile) with the line
  // of the mistake.
  ChatTemplate(std::string_view source, std::string_view name, TemplateLimits limits = {});
  ChatTemplate(ChatTemplate&& other) noexcept;
  ChatTemplate& operator=(ChatTemplate&& other) noexcept;
  ~ChatTemplate();

  // `variables`: an object; the order of keys is kept. `now`: the Unix seconds that strftime_now
  // sees, in UTC; empty means the clock. Safe to call from several threads at once. Throws Error:
  // kInvalidArgument where Python would raise, with raise_exception's own message unchanged, and
  // kLimit at a bound.
  std::string render(const OrderedJson& variables, std::optional<std::int64_t> now) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace bl
