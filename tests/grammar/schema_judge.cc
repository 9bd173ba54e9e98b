// Says which texts a constraint accepts. Reads one JSON object a line from standard input and
// writes one a line, in the same order:
//
//   in:  {"schema": …, "texts": ["…", …]}, or `schema_text` (a schema as JSON text), `regex` or
//        `grammar` (strings) in place of `schema`
//   out: {"accepted": [true, …]}; {"refused": "message"} if the constraint is refused;
//        {"error": "message"} if the line is not of that form
//
// Each text goes byte by byte through the path that generation takes, so a text is accepted exactly
// if a model can say it and end there.
#include <chrono>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "sample/constraint_world.h"

namespace bl::test {
namespace {

// Throws kInvalidArgument if the line has no constraint.
ConstraintSpec spec_of(const OrderedJson& line) {
  if (line.contains("schema")) return schema(json_text(line["schema"]));
  if (line.contains("schema_text")) return schema(line["schema_text"].get<std::string>());
  if (line.contains("regex")) return regex(line["regex"].get<std::string>());
  if (line.contains("grammar")) return grammar(line["grammar"].get<std::string>());
  fail(ErrorCode::kInvalidArgument, "none of schema, schema_text, regex and grammar is given");
}

class Judge {
 public:
  OrderedJson answer(const OrderedJson& line) {
    const ConstraintSpec spec = spec_of(line);
    const auto texts = line.at("texts").get<std::vector<std::string>>();
    const auto begin = std::chrono::steady_clock::now();
    OrderedJson accepted = OrderedJson::array();
    try {
      const CompiledConstraint compiled = world_.compiler.compile(spec);
      for (const std::string& text : texts) accepted.push_back(accepts(compiled, text));
    } catch (const Error& error) {
      return {{"refused", error.what()}};
    }
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    return {{"accepted", std::move(accepted)}, {"ms", spent.count()}};
  }

 private:
  bool accepts(const CompiledConstraint& compiled, const std::string& text) {
    Constraint constraint(compiled, {world_.made.end});
    for (const char byte : text) {
      const std::int32_t token = world_.token_of(byte);
      if (!constraint.allows(token)) return false;
      constraint.accept(token);
    }
    return constraint.complete();
  }

  World world_{byte_level_tokenizer({})};
};

}  // namespace
}  // namespace bl::test

int main() {
  std::ios::sync_with_stdio(false);
  bl::test::Judge judge;
  for (std::string line; std::getline(std::cin, line);) {
    bl::OrderedJson answer;
    try {
      answer = judge.answer(bl::parse_ordered_json(line, "the line"));
    } catch (const bl::Error& error) {
      answer = {{"error", error.what()}};
    } catch (const nlohmann::json::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << bl::json_text(answer) << std::endl;
  }
}
