#include "template_flags.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/reasoning_switch.h"
#include "text/chat_template.h"
#include "usage_error.h"

namespace bl {

OrderedJson parse_template_variables(const std::string& text) {
  if (text.empty()) return OrderedJson::object();
  OrderedJson variables;
  try {
    variables = parse_ordered_json(text, "--template-vars");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (!variables.is_object()) {
    fail_usage("--template-vars: {} should be a JSON object, such as {{\"thinking\": true}}",
               json_shown(variables));
  }
  return variables;
}

void TemplateFlags::plan(SessionOptions& session) const {
  parse_template_variables(variables);
  if (reasoning != "on" && reasoning != "off" && reasoning != "auto") {
    fail_usage("--reasoning: '{}' should be on, off or auto", reasoning);
  }
  if (file.empty()) return;
  session.chat_template = std::make_shared<const ChatTemplate>(read_file(file, 16 << 20), file);
}

OrderedJson TemplateFlags::resolve(const ModelText& text) const {
  OrderedJson all = OrderedJson::object();
  if (reasoning != "auto") all = reasoning_variables(text, reasoning == "on");
  const OrderedJson own = parse_template_variables(variables);
  for (const auto& [name, value] : own.items()) all[name] = value;
  return all;
}

}  // namespace bl
