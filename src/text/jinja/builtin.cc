#include "text/jinja/builtin.h"

#include "text/jinja/runtime.h"

namespace bl::jinja {
namespace {

std::size_t parameter_count(const Builtin& builtin) {
  std::size_t count = 0;
  while (count < kMaxParameters && builtin.params[count] != nullptr) ++count;
  return count;
}

}  // namespace

Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, const CallArgs& args) {
  rt.step();
  Arguments bound;
  const std::size_t count = parameter_count(builtin);
  std::size_t filled = 0;
  if (!self.missing()) bound.values[filled++] = self;
  std::size_t used = 0;
  while (used < args.positional.size() && filled < count) {
    bound.values[filled++] = args.positional[used++];
  }
  const bool variadic = builtin.style == Builtin::Style::kVariadic;
  if (variadic) {
    bound.rest = {args.positional.subspan(used), args.keywords};
  } else {
    if (used < args.positional.size()) {
      rt.fail("{}() takes at most {} arguments, but {} were given", builtin.name, count,
              args.positional.size() + (self.missing() ? 0 : 1));
    }
    for (const Keyword& keyword : args.keywords) {
      std::size_t at = 0;
      while (at < count && builtin.params[at] != keyword.name) ++at;
      if (at == count || builtin.style == Builtin::Style::kPositional) {
        rt.fail("{}() got an unexpected keyword argument '{}'", builtin.name, keyword.name);
      }
      if (bound.has(at)) {
        rt.fail("{}() got multiple values for argument '{}'", builtin.name, keyword.name);
      }
      bound.values[at] = keyword.value;
    }
  }
  for (std::size_t i = 0; i < builtin.required; ++i) {
    if (!bound.has(i)) {
      rt.fail("{}() is missing the argument '{}'", builtin.name, builtin.params[i]);
    }
  }
  return builtin.call(rt, bound);
}

}  // namespace bl::jinja
