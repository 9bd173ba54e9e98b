#include "api/ollama/options.h"

#include <string>
#include <string_view>
#include <utility>

#include "api/ollama/chat_body.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/shared_fields.h"
#include "api/typed_members.h"
#include "base/json.h"

namespace bl::ollama {
namespace {

using openai::fail_at;
using openai::given;

// Ollama counts penalties over the newest tokens of prompt and answer together.
constexpr int kPenaltyRange = 64;

void read_penalties(const OrderedJson& options, OrderedJson& to) {
  if (!to.contains("penalize_prompt")) to["penalize_prompt"] = true;
  if (given(options, "repeat_last_n") == nullptr) to["penalty_range"] = kPenaltyRange;
}

void read_sampling(const OrderedJson& body, OrderedJson& to) {
  const OrderedJson* options = openai::given_object(body, "options");
  if (options == nullptr) return;
  openai::copy_shared_fields(*options, to);
  read_penalties(*options, to);
  if (const auto most = openai::given_whole(*options, "options.num_predict")) {
    to["max_tokens"] = *most < 0 ? -1 : *most;  // −2 stands for "until the context is full"
  }
}

void read_format(const OrderedJson& body, OrderedJson& to) {
  const OrderedJson* format = given(body, "format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    to["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    to["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "answer"}, {"schema", *format}}}};
  } else {
    fail_at(ErrorCode::kInvalidArgument, "format",
            "format is {}, should be \"json\" or a JSON schema", json_shown(*format));
  }
}

// "think" is true, false, or how much.
void read_think(const OrderedJson& body, OrderedJson& to) {
  const OrderedJson* think = given(body, "think");
  if (think == nullptr) return;
  if (think->is_boolean()) {
    to["reasoning"] = {{"enabled", *think}};
  } else if (think->is_string() && *think != "") {
    to["reasoning"] = {{"enabled", true}, {"effort", *think}};
  } else {
    fail_at(ErrorCode::kInvalidArgument, "think",
            "think is {}, should be true, false or a text such as \"high\"", json_shown(*think));
  }
}

}  // namespace

void read_options(const OrderedJson& body, OrderedJson& to) {
  read_sampling(body, to);
  to["model"] = model_of(body);
  to["stream"] = is_streamed(body);
  read_format(body, to);
  read_think(body, to);
}

}  // namespace bl::ollama
