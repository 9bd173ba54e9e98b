#include "text/jinja/from_json.h"

#include "base/json.h"
#include "base/utf8.h"
#include "text/jinja/big_number.h"
#include "text/jinja/dict.h"

namespace bl::jinja {
namespace {

Value text_value(Runtime& rt, const std::string& text) {
  rt.check_size(text.size());
  if (!is_valid_utf8(text)) rt.fail("a variable holds text that is not UTF-8");
  return Value::string(text);
}

}  // namespace

Value from_json(Runtime& rt, const OrderedJson& json, int depth) {
  if (depth > rt.limits.max_value_depth) {
    rt.limit("variables are nested more than {} levels deep", rt.limits.max_value_depth);
  }
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value::none();
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::of_int(json.get<std::int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      BigNumber big{false,
                    {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)}};
      big.trim();
      return big.to_value(rt.arena);
    }
    case OrderedJson::value_t::number_float:
      return Value::of_float(json.get<double>());
    case OrderedJson::value_t::string:
      return text_value(rt, json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      auto* items = rt.arena.array<Value>(json.size());
      std::size_t count = 0;
      for (const OrderedJson& item : json) items[count++] = from_json(rt, item, depth + 1);
      return rt.list({items, count});
    }
    case OrderedJson::value_t::object: {
      DictBuilder builder(rt, json.size());
      for (const auto& [key, value] : json.items()) {
        builder.append(text_value(rt, key), from_json(rt, value, depth + 1));
      }
      return builder.finish();
    }
    default:
      rt.fail("a variable holds binary data");
  }
}

}  // namespace bl::jinja
