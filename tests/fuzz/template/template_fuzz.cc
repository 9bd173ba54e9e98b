// Any template over any variables: the input is the source, a zero byte, the variables as JSON.
// Whatever it is, it renders or throws bl::Error.

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace {

constexpr std::string_view kVariables =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé"},)"
    R"( {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",)"
    R"( "arguments": {"x": 1, "y": [1, 2.5, null, true]}}}]}], "n": 7, "f": 2.5, "s": "a b,c",)"
    R"( "l": [3, 1, 2], "d": {"b": 2, "a": 1}, "add_generation_prompt": true})";

bl::OrderedJson parse_variables(std::string_view text) {
  try {
    return bl::parse_ordered_json(text, "input");
  } catch (const bl::Error&) {
    return bl::parse_ordered_json(kVariables, "default");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  const std::string_view json = end == std::string_view::npos ? "" : input.substr(end + 1);
  bl::TemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_output = 1 << 20;
  limits.max_memory = 16 << 20;
  try {
    const bl::ChatTemplate chat(input.substr(0, end), "input", limits);
    const std::string text = chat.render(parse_variables(json), 1785067200);
    if (text.size() > limits.max_output) __builtin_trap();
  } catch (const bl::Error&) {
  }
  return 0;
}
