#include "chat_frame.h"

#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

// Stand for messages. No template writes these words by itself.
constexpr std::array<std::string_view, 3> kMessages{"a7Qz9first", "a7Qz9answer", "a7Qz9second"};

std::optional<std::string> render_messages(const ModelText& text) {
  OrderedJson messages = OrderedJson::array();
  for (std::size_t i = 0; i < kMessages.size(); ++i) {
    OrderedJson message;
    message["role"] = i == 1 ? "assistant" : "user";
    message["content"] = kMessages[i];
    messages.push_back(std::move(message));
  }
  OrderedJson variables;
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = true;
  try {
    return text.render(std::move(variables), kCalibrationTime);
  } catch (const Error& error) {
    // The template refuses such a conversation, or is none that can be read.
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kInvalidFile) {
      throw;
    }
    return std::nullopt;
  }
}

}  // namespace

std::string render_conversation(const ModelText& text, const OrderedJson& messages) {
  OrderedJson variables;
  variables["messages"] = messages;
  variables["add_generation_prompt"] = false;
  return text.render_chat(variables, kCalibrationTime);
}

std::optional<ChatFrame> chat_frame(const ModelText& text) {
  if (!text.has_chat_template()) return std::nullopt;
  const std::optional<std::string> rendered = render_messages(text);
  if (!rendered) return std::nullopt;
  std::array<std::string, 4> pieces;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < kMessages.size(); ++i) {
    const std::size_t at = rendered->find(kMessages[i], begin);
    if (at == rendered->npos) return std::nullopt;
    pieces[i] = rendered->substr(begin, at - begin);
    begin = at + kMessages[i].size();
  }
  pieces[3] = rendered->substr(begin);
  // Behind the last message the template asks for an answer, as it does when the model is used; it
  // may write less between two messages of a conversation that is over.
  const auto encode = [&](const std::string& piece) {
    return text.tokenizer().encode(piece, {.add_special = false});
  };
  ChatFrame frame{encode(pieces[0]), encode(pieces[3]), encode(pieces[2])};
  if (frame.opening.empty() || frame.after_user.empty() || frame.after_answer.empty()) {
    return std::nullopt;
  }
  return frame;
}

}  // namespace bl
