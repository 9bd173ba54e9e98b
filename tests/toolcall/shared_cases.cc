#include "shared_cases.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "support/data.h"
#include "toolcall/detect_format.h"

namespace bl::test {
namespace {

std::filesystem::path packed_cases() { return shared_dir() / "tool-calls" / "cases.jsonl.xz"; }

}  // namespace

bool SharedCases::are_here() {
  return !shared_dir().empty() && std::filesystem::exists(packed_cases());
}

SharedCases::SharedCases() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const auto plain = scratch_dir(test->name()) / "cases.jsonl";
  const std::string command = "xz -dc '" + packed_cases().string() + "' > '" + plain.string() + "'";
  BL_CHECK(std::system(command.c_str()) == 0);
  lines_.open(plain);
}

std::optional<std::string> SharedCases::KnownTemplate::render(OrderedJson variables) const {
  std::optional<std::int64_t> now;
  if (variables.contains("now")) {
    now = variables.at("now").get<std::int64_t>();
    variables.erase("now");
  }
  try {
    return chat.render(variables, now);
  } catch (const Error&) {
    return std::nullopt;
  }
}

const SharedCases::KnownTemplate& SharedCases::known(const Json& document) {
  const std::string name = document.at("template").get<std::string>();
  const auto at = templates_.find(name);
  if (at != templates_.end()) return at->second;
  const auto source = read_file(shared_dir() / "templates" / name, 1 << 20);
  KnownTemplate entry{ChatTemplate(source, name), {}};
  OrderedJson tokens;
  for (const auto& [key, value] : document.at("variables").items()) {
    if (key.ends_with("_token")) tokens[key] = value.get<std::string>();
  }
  const auto render = [&](const OrderedJson& variables) {
    OrderedJson all = tokens;
    all.update(variables);
    all["now"] = 0;
    return entry.render(all);
  };
  entry.format = detect_answer_format({source, render});
  return templates_.emplace(name, std::move(entry)).first->second;
}

std::optional<SharedCase> SharedCases::next() {
  std::string line;
  if (!std::getline(lines_, line)) return std::nullopt;
  SharedCase result;
  result.document = parse_json(line, "case");
  OrderedJson variables = parse_ordered_json(line, "case").at("variables");
  const KnownTemplate& chat = known(result.document);
  result.format = &chat.format;
  result.tools =
      std::make_shared<const ToolSet>(result.document.at("variables").value("tools", Json()));
  variables["add_generation_prompt"] = true;
  const std::string prompt = chat.render(variables).value_or("");
  variables["add_generation_prompt"] = false;
  const std::string without = chat.render(variables).value_or("");
  result.options.start = find_answer_start(chat.format, prompt, generation_tail(prompt, without));
  return result;
}

std::map<std::string, std::string> SharedCases::formats() const {
  std::map<std::string, std::string> names;
  for (const auto& [name, entry] : templates_) names[name] = entry.format.name;
  return names;
}

}  // namespace bl::test
