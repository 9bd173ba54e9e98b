#pragma once
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/jinja/arena.h"
#include "text/jinja/value.h"

namespace bl::jinja {

using ValueVector = std::pmr::vector<Value>;

// The state of one rendering: its memory, its bounds, the line that is being executed. Everything
// that computes values takes it as its first argument.
class Runtime {
 public:
  Runtime(const TemplateLimits& limits, std::string_view name)
      : arena(limits.max_memory), limits(limits), name_(name), steps_left_(limits.max_steps) {}

  Arena arena;
  const TemplateLimits limits;
  std::uint32_t line = 1;           // line of the statement or expression being evaluated
  bool autoescape = false;          // inside {% autoescape true %}
  std::optional<std::int64_t> now;  // Unix seconds; if empty, the clock is used

  // For the filter `random`, whose results are not predictable in Python either.
  std::uint32_t random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(random_ >> 33);
  }

  // Counts work. Throws Error(kLimit) when the template has used up its steps.
  void step(std::int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) out_of_steps();
  }
  // Counts work in proportion to a number of bytes.
  void scan(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 64)); }

  // Throws Error(kInvalidArgument), or Error(kLimit) for limit(), with "NAME, line 3: message".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void limit(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(ErrorCode::kLimit, fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns a copy of `text` in the arena. Throws kLimit beyond limits.max_output bytes.
  Value string(std::string_view text);
  // Returns `a` followed by `b`. Extending one string again and again costs amortised time and
  // memory that are linear in its final size.
  Value concat(const Value& a, std::string_view b);
  // Make containers over arrays that live in the arena.
  Value list(std::span<const Value> items) { return sequence(Kind::kList, items); }
  Value tuple(std::span<const Value> items) { return sequence(Kind::kTuple, items); }
  Value pair(const Value& a, const Value& b);
  Value iterator(std::span<const Value> items, const char* type = "generator");
  // Make undefined values: with `hint` as the whole message, for a missing part `name` of `object`,
  // or for a variable that is not set.
  Value undefined(std::string_view hint);
  Value undefined(const Value& object, const Value& name);
  Value undefined_variable(std::string_view name);
  ValueVector vector() { return ValueVector(&arena); }
  // The storage of a vector made by vector(), which stays valid after the vector is gone.
  static std::span<const Value> keep(const ValueVector& items) {
    return {items.data(), items.size()};
  }
  // Returns a copy of an array in the arena.
  std::span<const Value> copy(std::span<const Value> items);
  // Returns the depth of a container of `items`. Throws kLimit if it would be too deep to print.
  std::uint16_t depth_of(std::span<const Value> items) const;
  // Returns the depth of a container whose deepest item has `depth`. Throws likewise.
  std::uint16_t deeper(std::size_t depth) const;
  // Throws kLimit if a string of `size` bytes, or a container of `size` items, would be too big.
  void check_size(std::size_t size) const;

 private:
  Value sequence(Kind kind, std::span<const Value> items);
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void fail_with(ErrorCode code, const std::string& message) const;

  std::string_view name_;
  std::int64_t steps_left_;
  std::uint64_t random_ = 1;
};

}  // namespace bl::jinja
