#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "toolcall/answer_format.h"

namespace bl {

// A chat template, to be tried out.
struct TemplateProbe {
  std::string_view source;
  // Renders the template; nothing if it refuses the variables. The caller adds the model's special
  // tokens.
  std::function<std::optional<std::string>(const OrderedJson&)> render;
};

// The format in which a template wants answers. A conversation with a call of a made-up tool is
// rendered, and the format is the one that reads this call back; where two do, the one whose own
// writing the template used. A template that renders no calls but shows the signs of a format in
// its text has that format. Otherwise the format is "none": then everything but reasoning is
// content.
AnswerFormat detect_answer_format(const TemplateProbe& probe);

// The part of a rendered prompt that add_generation_prompt added; empty where nothing was added.
// `prompt` was rendered with it, `without` without it.
std::string_view generation_tail(std::string_view prompt, std::string_view without);

}  // namespace bl
