#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/model_text.h"

namespace bl {

// The time that chat templates see when they render for a calibration (1 January 2026): a template
// that shows the date would otherwise make other rows tomorrow.
constexpr std::int64_t kCalibrationTime = 1767225600;

// The text of a whole conversation of [{"role", "content"}, …]. Throws as ModelText::render_chat().
std::string render_conversation(const ModelText& text, const OrderedJson& messages);

// What a model's chat template writes around the messages of a conversation, as tokens. None of the
// three is empty.
struct ChatFrame {
  std::vector<std::int32_t> opening;       // before the first message of the user
  std::vector<std::int32_t> after_user;    // between that message and its answer
  std::vector<std::int32_t> after_answer;  // between an answer and the user's next message
};

// Returns nothing where the model has no chat template, or one that does not simply put texts
// around the messages of a conversation that the user begins.
std::optional<ChatFrame> chat_frame(const ModelText& text);

}  // namespace bl
