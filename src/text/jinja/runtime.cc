#include "text/jinja/runtime.h"

#include <algorithm>
#include <cstring>

namespace bl::jinja {
namespace {

// Strings of this size and more get room to grow.
constexpr std::size_t kGrowFrom = 128;

// Precedes the text of a kGrowable string. Only a string that ends where `used` ends may be
// extended in place, so that shorter, older views of the same bytes do not change.
struct GrowthHeader {
  std::uint32_t used = 0;
  std::uint32_t capacity = 0;
};

}  // namespace

void Runtime::out_of_steps() const {
  limit("the template does not end within {} steps", limits.max_steps);
}

void Runtime::fail_with(ErrorCode code, const std::string& message) const {
  bl::fail(code, "{}, line {}: {}", name_, line, message);
}

void Runtime::check_size(std::size_t size) const {
  if (size > limits.max_output) limit("a value is larger than {} bytes", limits.max_output);
}

Value Runtime::string(std::string_view text) {
  check_size(text.size());
  return Value::string(arena.copy(text));
}

Value Runtime::concat(const Value& a, std::string_view b) {
  const std::size_t size = a.size + b.size();
  check_size(size);
  scan(b.size());
  if ((a.flags & Value::kGrowable) != 0) {
    auto* header = reinterpret_cast<GrowthHeader*>(const_cast<char*>(a.text)) - 1;
    if (header->used == a.size && header->capacity >= size) {
      std::memcpy(const_cast<char*>(a.text) + a.size, b.data(), b.size());
      header->used = static_cast<std::uint32_t>(size);
      Value longer = a;
      longer.size = header->used;
      return longer;
    }
  }
  scan(a.size);
  if (size < kGrowFrom) {
    char* place = arena.array<char>(size);
    std::copy(a.text, a.text + a.size, place);
    std::copy(b.begin(), b.end(), place + a.size);
    return Value::string({place, size});
  }
  const std::size_t capacity = size + size / 2;
  auto* header = static_cast<GrowthHeader*>(
      arena.take(sizeof(GrowthHeader) + capacity, alignof(GrowthHeader)));
  *header = {static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(capacity)};
  char* place = reinterpret_cast<char*>(header + 1);
  std::copy(a.text, a.text + a.size, place);
  std::copy(b.begin(), b.end(), place + a.size);
  Value value = Value::string({place, size});
  value.flags = Value::kGrowable;
  return value;
}

std::uint16_t Runtime::deeper(std::size_t depth) const {
  if (depth >= limits.max_value_depth) {
    limit("values are nested more than {} levels deep", limits.max_value_depth);
  }
  return static_cast<std::uint16_t>(depth + 1);
}

std::uint16_t Runtime::depth_of(std::span<const Value> items) const {
  std::uint16_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth);
  return deeper(depth);
}

Value Runtime::sequence(Kind kind, std::span<const Value> items) {
  check_size(items.size());
  Value value;
  value.kind = kind;
  value.depth = depth_of(items);
  value.size = static_cast<std::uint32_t>(items.size());
  value.items = items.data();
  return value;
}

std::span<const Value> Runtime::copy(std::span<const Value> items) {
  step(static_cast<std::int64_t>(items.size()));
  auto* place = arena.array<Value>(items.size());
  std::copy(items.begin(), items.end(), place);
  return {place, items.size()};
}

Value Runtime::pair(const Value& a, const Value& b) {
  auto* items = arena.array<Value>(2);
  items[0] = a;
  items[1] = b;
  return tuple({items, 2});
}

Value Runtime::iterator(std::span<const Value> items, const char* type) {
  Value value;
  value.kind = Kind::kIterator;
  value.depth = depth_of(items);
  value.iterator = arena.make<Iterator>(items, std::size_t{0}, type);
  return value;
}

Value Runtime::undefined(std::string_view hint) {
  Value value;
  value.kind = Kind::kUndefined;
  value.undefined = arena.make<UndefinedInfo>(hint, std::string_view{}, Value{});
  return value;
}

Value Runtime::undefined_variable(std::string_view name) {
  Value value;
  value.kind = Kind::kUndefined;
  value.undefined =
      arena.make<UndefinedInfo>(std::string_view{}, std::string_view{}, Value::string(name));
  return value;
}

}  // namespace bl::jinja
