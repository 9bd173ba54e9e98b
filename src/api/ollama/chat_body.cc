#include "api/ollama/chat_body.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "api/ollama/options.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/typed_members.h"
#include "base/json.h"

namespace bl::ollama {
namespace {

using openai::fail_at;
using openai::given;
using openai::given_text;

void refuse_images(const OrderedJson& object, const std::string& path) {
  const OrderedJson* images = openai::given_list(object, path);
  if (images == nullptr || images->empty()) return;
  fail_at(ErrorCode::kUnsupported, path, "{}: only text can be read", path);
}

// Ollama's calls may lack ids, and its results name the tool. The templates that want ids get some.
class CallIds {
 public:
  std::string of_call(const OrderedJson& call, const std::string& tool) {
    const OrderedJson* id = given(call, "id");
    open_.push_back({tool, id != nullptr && id->is_string() ? id->get<std::string>()
                                                            : fmt::format("call_{}", ++made_)});
    return open_.back().id;
  }
  // The oldest call of this tool that has no result yet; without a name, the oldest of all.
  std::string of_result(const std::string& tool) {
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const Call& call) {
      return tool.empty() || call.tool == tool;
    });
    if (found == open_.end()) return fmt::format("call_{}", ++made_);
    std::string id = std::move(found->id);
    open_.erase(found);
    return id;
  }

 private:
  struct Call {
    std::string tool;
    std::string id;
  };
  std::vector<Call> open_;
  int made_ = 0;
};

OrderedJson call_of(const OrderedJson& call, const std::string& path, CallIds& ids) {
  openai::expect_object(call, path);
  const OrderedJson* function = openai::given_object(call, path + ".function");
  if (function == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, path + ".function", "{} has no function", path);
  }
  const std::string& name = openai::needed_text(*function, path + ".function.name");
  const OrderedJson* arguments = given(*function, "arguments");
  return {
      {"id", ids.of_call(call, name)},
      {"type", "function"},
      {"function",
       {{"name", name}, {"arguments", arguments == nullptr ? OrderedJson::object() : *arguments}}}};
}

OrderedJson message_of(const OrderedJson& message, const std::string& path, CallIds& ids) {
  openai::expect_object(message, path);
  refuse_images(message, path + ".images");
  const std::string& role = openai::needed_text(message, path + ".role");
  const std::string* content = given_text(message, path + ".content");
  OrderedJson result = {{"role", role}, {"content", content == nullptr ? "" : *content}};
  if (const std::string* thinking = given_text(message, path + ".thinking")) {
    if (!thinking->empty()) result["reasoning_content"] = *thinking;
  }
  const OrderedJson* calls = openai::given_list(message, path + ".tool_calls");
  if (calls != nullptr && !calls->empty()) {
    if (result["content"] == "") result["content"] = nullptr;
    for (std::size_t i = 0; i < calls->size(); ++i) {
      result["tool_calls"].push_back(
          call_of((*calls)[i], fmt::format("{}.tool_calls[{}]", path, i), ids));
    }
  }
  if (role == "tool") {
    const std::string* tool = given_text(message, path + ".tool_name");
    if (tool == nullptr) tool = given_text(message, path + ".name");
    const std::string* id = given_text(message, path + ".tool_call_id");
    const std::string found = ids.of_result(tool == nullptr ? std::string() : *tool);
    result["tool_call_id"] = id == nullptr ? found : *id;
    if (tool != nullptr) result["name"] = *tool;
  }
  return result;
}

// Clients write null for keywords of a schema that they leave out. No keyword but these may be
// null, or hold values that are.
void drop_nulls(OrderedJson& schema) {
  if (schema.is_array()) {
    for (OrderedJson& part : schema) drop_nulls(part);
  }
  if (!schema.is_object()) return;
  for (auto part = schema.begin(); part != schema.end();) {
    const std::string& key = part.key();
    if (key == "const" || key == "default" || key == "enum" || key == "examples") {
      ++part;
    } else if (part->is_null()) {
      part = schema.erase(part);
    } else {
      drop_nulls(*part++);
    }
  }
}

OrderedJson tools_of(const OrderedJson& list) {
  OrderedJson tools = list;
  for (OrderedJson& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) continue;
    const auto parameters = function->find("parameters");
    if (parameters == function->end()) continue;
    if (parameters->is_null()) {
      function->erase(parameters);
    } else {
      drop_nulls(*parameters);
    }
  }
  return tools;
}

const std::string& prompt_of(const OrderedJson& body) {
  refuse_images(body, "images");
  for (const char* key : {"suffix", "template"}) {
    const std::string* text = given_text(body, key);
    if (text == nullptr || text->empty()) continue;
    fail_at(ErrorCode::kUnsupported, key, "{} is not supported; leave it out", key);
  }
  return openai::needed_text(body, "prompt");
}

}  // namespace

OrderedJson chat_body(const OrderedJson& body) {
  OrderedJson chat = OrderedJson::object();
  read_options(body, chat);
  const OrderedJson* messages = openai::given_list(body, "messages");
  chat["messages"] = OrderedJson::array();
  CallIds ids;
  for (std::size_t i = 0; messages != nullptr && i < messages->size(); ++i) {
    chat["messages"].push_back(message_of((*messages)[i], fmt::format("messages[{}]", i), ids));
  }
  const OrderedJson* tools = openai::given_list(body, "tools");
  if (tools != nullptr && !tools->empty()) chat["tools"] = tools_of(*tools);
  return chat;
}

OrderedJson generate_chat_body(const OrderedJson& body) {
  OrderedJson chat = OrderedJson::object();
  read_options(body, chat);
  chat["messages"] = OrderedJson::array();
  const std::string* system = given_text(body, "system");
  if (system != nullptr && !system->empty()) {
    chat["messages"].push_back({{"role", "system"}, {"content", *system}});
  }
  chat["messages"].push_back({{"role", "user"}, {"content", prompt_of(body)}});
  return chat;
}

OrderedJson raw_body(const OrderedJson& body) {
  OrderedJson completion = OrderedJson::object();
  read_options(body, completion);
  completion.erase("reasoning");  // a wish about the template, which is not used
  completion["prompt"] = prompt_of(body);
  if (!completion.contains("max_tokens")) completion["max_tokens"] = -1;  // OpenAI's default is 16
  return completion;
}

std::string model_of(const OrderedJson& body) {
  const std::string* model = given_text(body, "model");
  if (model == nullptr || model->empty()) model = given_text(body, "name");
  if (model == nullptr || model->empty()) {
    fail_at(ErrorCode::kInvalidArgument, "model", "model is missing; it should name a model");
  }
  return *model;
}

bool asks_for_loading(const OrderedJson& body, bool is_chat) {
  if (is_chat) {
    const OrderedJson* messages = openai::given_list(body, "messages");
    return messages == nullptr || messages->empty();
  }
  const auto is_empty = [&](const char* key) {
    const std::string* text = given_text(body, key);
    return text == nullptr || text->empty();
  };
  refuse_images(body, "images");
  return is_empty("prompt") && is_empty("suffix");
}

bool is_streamed(const OrderedJson& body) { return openai::read_flag(body, "stream", true); }

}  // namespace bl::ollama
