// Says which texts a constraint accepts. Reads one JSON object a line from standard input and
// writes one a line, in the same order:
//
//   in:  {"schema": …, "texts": ["…", …]}, or `schema_text` (a schema as JSON text), `regex` or
//        `grammar` (strings) in place of `schema`. A schema may have `whitespace` beside it, as the
//        option --json-whitespace takes it, and the flags `strict` and `tool_parameters`
//   out: {"accepted": [true, …], "compile_ms": processor time}; {"refused": "message"} if the
//        constraint is refused; {"error": "message"} if the line is not of that form
//
// Each text goes byte by byte through the path that generation takes, so a text is accepted exactly
// if a model can say it and end there.
#include <ctime>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "sample/constraint_world.h"

namespace bl::test {
namespace {

// Throws kInvalidArgument if the line has no constraint, or one that is not understood.
ConstraintSpec spec_of(const OrderedJson& line) {
  if (line.contains("schema") || line.contains("schema_text")) {
    ConstraintSpec spec = schema(line.contains("schema") ? json_text(line["schema"])
                                                         : line["schema_text"].get<std::string>());
    spec.whitespace = json_whitespace_of(line.value("whitespace", "default"));
    spec.strict = line.value("strict", true);
    spec.tool_parameters = line.value("tool_parameters", false);
    return spec;
  }
  if (line.contains("regex")) return regex(line["regex"].get<std::string>());
  if (line.contains("grammar")) return grammar(line["grammar"].get<std::string>());
  fail(ErrorCode::kInvalidArgument, "none of schema, schema_text, regex and grammar is given");
}

class Judge {
 public:
  OrderedJson answer(const OrderedJson& line) {
    const ConstraintSpec spec = spec_of(line);
    const auto texts = line.at("texts").get<std::vector<std::string>>();
    const std::clock_t begin = std::clock();  // processor time of all threads
    double compile_ms = 0;
    OrderedJson accepted = OrderedJson::array();
    try {
      const CompiledConstraint compiled = world_.compiler.compile(spec);
      compile_ms = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      for (const std::string& text : texts) accepted.push_back(accepts(compiled, text));
    } catch (const Error& error) {
      return {{"refused", error.what()}};
    }
    return {{"accepted", std::move(accepted)}, {"compile_ms", compile_ms}};
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
