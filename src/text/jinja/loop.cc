#include "text/jinja/scope.h"

namespace bl::jinja {

bool Loop::advance() {
  Value item;
  if (ahead_used < ahead.size()) {
    item = ahead[ahead_used++];
  } else if (!source->next(item)) {
    return false;
  }
  ++index0;
  previous = current;
  current = item;
  return true;
}

bool Loop::peek(Value& item) {
  if (ahead_used == ahead.size()) {
    if (over || !source->next(item)) return false;
    ahead.clear();
    ahead_used = 0;
    ahead.push_back(item);
  }
  item = ahead[ahead_used];
  return true;
}

std::int64_t Loop::get_length() {
  if (length) return *length;
  if (over) return index0 + 1;
  if (const auto known = source->known_length()) {
    length = static_cast<std::int64_t>(*known);
    return *length;
  }
  ahead.erase(ahead.begin(), ahead.begin() + static_cast<std::ptrdiff_t>(ahead_used));
  ahead_used = 0;
  for (Value item; source->next(item);) ahead.push_back(item);
  length = index0 + 1 + static_cast<std::int64_t>(ahead.size());
  return *length;
}

Value Loop::attribute(std::string_view name) {
  Value item;
  if (name == "index") return Value::of_int(index0 + 1);
  if (name == "index0") return Value::of_int(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!peek(item));
  if (name == "length") return Value::of_int(get_length());
  if (name == "revindex") return Value::of_int(get_length() - index0);
  if (name == "revindex0") return Value::of_int(get_length() - index0 - 1);
  if (name == "depth") return Value::of_int(depth0 + 1);
  if (name == "depth0") return Value::of_int(depth0);
  if (name == "previtem") {
    return index0 == 0 ? rt.undefined("there is no previous item") : previous;
  }
  if (name == "nextitem") return peek(item) ? item : rt.undefined("there is no next item");
  return {};
}

}  // namespace bl::jinja
