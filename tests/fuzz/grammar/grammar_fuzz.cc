// Any bytes as a constraint (the first byte says of which kind): an error of one line, or a grammar
// whose masks can be followed: each allowed token is accepted, and going on in another way and back
// changes nothing.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "sample/constraint_compiler.h"
#include "sample/grammar_tokenizers.h"

namespace {

using namespace bl;

struct World {
  World() {
    limits.text_bytes = 1 << 14;
    limits.compile_seconds = 2;
    limits.compile_bytes = 64 << 20;
    limits.answer_bytes = 16 << 20;
    limits.cache_bytes = 1 << 20;
  }
  test::GrammarTokenizer made = test::byte_level_tokenizer();
  ConstraintLimits limits;
};

void check_line(const Error& error) {
  BL_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

void walk(Constraint& constraint, std::uint32_t seed) {
  for (int step = 0; step < 24 && !constraint.finished(); ++step) {
    const std::span<const std::uint32_t> mask = constraint.mask();
    std::int32_t allowed = -1;
    std::int32_t refused = -1;
    const auto bits = static_cast<std::int32_t>(mask.size()) * 32;
    seed = seed * 1664525u + 1013904223u;
    for (std::int32_t i = 0; i < bits; ++i) {
      const auto token = static_cast<std::int32_t>((static_cast<std::uint32_t>(i) + seed) %
                                                   static_cast<std::uint32_t>(bits));
      const bool bit = (mask[static_cast<std::size_t>(token) / 32] >> token % 32 & 1) != 0;
      if (bit && allowed < 0) allowed = token;
      if (!bit && refused < 0) refused = token;
    }
    if (refused >= 0) {
      try {
        // Of a grammar that reads a text in several ways, a mask may leave out what one of them
        // takes.
        constraint.accept(refused);
        constraint.rollback(1);
      } catch (const Error& error) {
        check_line(error);
        if (error.code() == ErrorCode::kLimit) return;
      }
    }
    BL_CHECK(allowed >= 0);
    constraint.accept(allowed);
    if (step % 7 != 3) continue;
    constraint.rollback(1);
    BL_CHECK(constraint.allows(allowed));
    constraint.accept(allowed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const World world;
  if (size == 0) return 0;
  using Kind = ConstraintSpec::Kind;
  constexpr Kind kKinds[] = {Kind::kGrammar, Kind::kRegex, Kind::kJsonSchema, Kind::kStructuralTag};
  ConstraintSpec spec;
  spec.kind = kKinds[data[0] % 4];
  spec.strict = (data[0] & 4) == 0;
  if ((data[0] & 8) != 0) spec.whitespace.kind = JsonWhitespace::Kind::kCompact;
  spec.prefer_end = (data[0] & 16) != 0;
  spec.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto try_one = [&](const ConstraintSpec& one) {
    static ConstraintCompiler compiler(*world.made.tokenizer, world.limits);
    Constraint constraint(compiler.compile(one), {world.made.end});
    walk(constraint, static_cast<std::uint32_t>(size));
  };
  try {
    try_one(spec);
  } catch (const Error& error) {
    check_line(error);
  }
  try {
    const OrderedJson body = parse_ordered_json(spec.text, "input");
    if (!body.is_object()) return 0;
    if (const ConstraintSpec asked = read_constraint(body, "input")) try_one(asked);
  } catch (const Error& error) {
    check_line(error);
  }
  return 0;
}
