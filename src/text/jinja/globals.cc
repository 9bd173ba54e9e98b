// The names that every template knows.

#include <algorithm>
#include <chrono>

#include "text/jinja/builtin.h"
#include "text/jinja/dict.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operations.h"
#include "text/jinja/scope.h"
#include "text/jinja/strftime.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100000;          // the bound of jinja2's sandbox
constexpr std::int64_t kLatestTime = 253402300799;  // the end of the year 9999, Python's last

Value global_range(Runtime& rt, const Arguments& args) {
  const auto at = [&](std::size_t i) { return to_index(rt, args[i], "a range bound"); };
  Range range;
  range.start = args.has(1) ? at(0) : 0;
  range.stop = args.has(1) ? at(1) : at(0);
  range.step = args.has(2) ? at(2) : 1;
  if (range.step == 0) rt.fail("range() arg 3 must not be zero");
  const auto low = static_cast<__int128>(range.step > 0 ? range.start : range.stop);
  const auto high = static_cast<__int128>(range.step > 0 ? range.stop : range.start);
  const __int128 step = range.step > 0 ? __int128{range.step} : -__int128{range.step};
  const __int128 count = high > low ? (high - low - 1) / step + 1 : 0;
  if (count > kMaxRange) {
    rt.limit("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange);
  }
  range.size = static_cast<std::int64_t>(count);
  Value value;
  value.kind = Kind::kRange;
  value.range = rt.arena.make<Range>(range);
  return value;
}

// dict(mapping or pairs, **keywords)
Value make_dict(Runtime& rt, const CallArgs& args) {
  if (args.positional.size() > 1) {
    rt.fail("dict expected at most 1 argument, got {}", args.positional.size());
  }
  DictBuilder builder(rt, args.keywords.size());
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      builder.update(*source.dict);
    } else {
      for (const Value& pair : items_of(rt, source)) {
        const auto parts = items_of(rt, pair);
        if (parts.size() != 2) {
          rt.fail("dictionary update sequence element has length {}; 2 is required", parts.size());
        }
        builder.set(parts[0], parts[1]);
      }
    }
  }
  for (const Keyword& keyword : args.keywords) {
    builder.set(Value::string(keyword.name), keyword.value);
  }
  return builder.finish();
}

Value global_dict(Runtime& rt, const Arguments& args) { return make_dict(rt, args.rest); }

Value global_namespace(Runtime& rt, const Arguments& args) {
  const Value dict = make_dict(rt, args.rest);
  auto* space = rt.arena.make<Namespace>(std::pmr::vector<NamespaceEntry>(&rt.arena));
  for (const DictEntry& entry : dict.dict->list()) {
    if (entry.key.is_string()) space->set(entry.key.str(), entry.value);
  }
  Value value;
  value.kind = Kind::kNamespace;
  value.space = space;
  return value;
}

Value global_cycler(Runtime& rt, const Arguments& args) {
  if (args.rest.positional.empty()) rt.fail("at least one item has to be provided");
  Value value;
  value.kind = Kind::kCycler;
  value.depth = rt.depth_of(args.rest.positional);
  value.cycler = rt.arena.make<Cycler>(rt.copy(args.rest.positional), std::size_t{0});
  return value;
}

Value global_joiner(Runtime& rt, const Arguments& args) {
  Value value;
  value.kind = Kind::kJoiner;
  value.joiner = rt.arena.make<Joiner>(args.has(0) ? args[0] : Value::string(", "), false);
  return value;
}

// The template's own error: its message is the whole message.
Value global_raise_exception(Runtime& rt, const Arguments& args) {
  std::string message;
  append_str(rt, args[0], message);
  throw Error(ErrorCode::kInvalidArgument, message);
}

Value global_strftime_now(Runtime& rt, const Arguments& args) {
  if (!args[0].is_string()) rt.fail("strftime_now() needs a format");
  const auto clock = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t seconds =
      rt.now.value_or(std::chrono::duration_cast<std::chrono::seconds>(clock).count());
  rt.scan(args[0].size * 16);
  return rt.string(format_time(args[0].str(), std::clamp<std::int64_t>(seconds, 0, kLatestTime)));
}

Value global_lipsum(Runtime& rt, const Arguments&) {
  rt.fail("lipsum(), which makes random text, is not available");
}

using enum Builtin::Style;

constexpr Builtin kGlobals[] = {
    {"namespace", global_namespace, 0, {}, kVariadic},
    {"raise_exception", global_raise_exception, 1, {"message"}},
    {"strftime_now", global_strftime_now, 1, {"format"}},
    {"range", global_range, 1, {"start", "stop", "step"}, kPositional},
    {"dict", global_dict, 0, {}, kVariadic},
    {"cycler", global_cycler, 0, {}, kVariadic},
    {"joiner", global_joiner, 0, {"sep"}},
    {"lipsum", global_lipsum, 0, {}, kVariadic},
};

}  // namespace

const Builtin* find_global(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [name](const Builtin& global) { return global.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace bl::jinja
