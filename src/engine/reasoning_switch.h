#pragma once
#include <array>

#include "base/json_fwd.h"

namespace bl {

class ModelText;

// The variables by which chat templates ask whether the model is to reason before it answers.
inline constexpr std::array kReasoningSwitches{"enable_thinking", "thinking", "reasoning"};

// Returns the template variables that switch reasoning on or off: of kReasoningSwitches those that
// change the prompt of the model's template; where there are none, reasoning_effort with a value
// that the template knows for it. Throws kUnsupported where the template has no such switch, and
// kNotFound where the model has no template.
OrderedJson reasoning_variables(const ModelText& text, bool on);

}  // namespace bl
