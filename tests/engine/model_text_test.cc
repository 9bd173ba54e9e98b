#include "engine/model_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/data.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

// A model's text with a template of the test's own.
ModelText text_with(const std::string& source) {
  const std::filesystem::path folder = make_tiny_model("model-text");
  const Json config = {{"chat_template", source}};
  write_file_atomically(folder / "tokenizer_config.json", config.dump());
  return {Tokenizer::load(folder), "tiny"};
}

// A conversation with these roles; each message says its number.
OrderedJson conversation(const std::vector<std::string>& roles) {
  OrderedJson messages = OrderedJson::array();
  for (const std::string& role : roles) {
    OrderedJson message;
    message["role"] = role;
    message["content"] = std::to_string(messages.size());
    messages.push_back(std::move(message));
  }
  OrderedJson variables;
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = true;
  return variables;
}

std::string render_error(const ModelText& text, const OrderedJson& variables) {
  try {
    text.render_chat(variables, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kAlternating =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}";

TEST(ModelText, NamesTheMessageThatTheTemplateRefuses) {
  const ModelText text = text_with(kAlternating);
  EXPECT_EQ(text.render_chat(conversation({"user", "assistant", "user"}), 0), "012");
  EXPECT_EQ(render_error(text, conversation({"assistant"})),
            "messages[0] (assistant): roles must alternate");
  EXPECT_EQ(render_error(text, conversation({"user", "assistant", "assistant", "user", "user"})),
            "messages[2] (assistant): roles must alternate");
  std::vector<std::string> roles;
  for (int i = 0; i < 101; ++i) roles.emplace_back(i % 2 == 0 || i == 77 ? "user" : "assistant");
  EXPECT_EQ(render_error(text, conversation(roles)), "messages[77] (user): roles must alternate");
}

// What Python raises by itself, as for text plus nothing.
TEST(ModelText, NamesTheMessageThatBreaksTheTemplate) {
  const ModelText text = text_with("{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  OrderedJson variables = conversation({"user", "assistant", "tool"});
  variables["messages"][1]["content"] = nullptr;
  EXPECT_TRUE(render_error(text, variables).starts_with("messages[1] (assistant): "))
      << render_error(text, variables);
  variables["messages"][1].erase("role");
  EXPECT_TRUE(render_error(text, variables).starts_with("messages[1] (no role): "))
      << render_error(text, variables);
}

// A template that fails whatever it is given says so as it is.
TEST(ModelText, BlamesNoMessageForABrokenTemplate) {
  const ModelText text = text_with("{{ raise_exception('not for chats') }}");
  EXPECT_EQ(render_error(text, conversation({"user"})), "not for chats");
  EXPECT_EQ(render_error(text, conversation({})), "not for chats");
}

}  // namespace
}  // namespace bl::test
