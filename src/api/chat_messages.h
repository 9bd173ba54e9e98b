#pragma once
#include "base/json_fwd.h"

namespace bl::openai {

// Converts the messages of a chat request in OpenAI's form to what the templates of text models
// take: a content that is a list of text parts becomes one text, with one line per part; a content
// that is missing beside tool calls becomes null, and an empty list of calls is left out.
// Everything else in a message is kept for the template to use. Throws RequestError, naming the
// place, unless this is a list of messages with roles, all parts are text, and tool_calls are
// objects whose functions have names.
OrderedJson template_messages(const OrderedJson& messages);

// Checks the tools of a chat request and returns them unchanged; null means that there are none.
// Throws RequestError unless they are a list of objects whose functions have names.
OrderedJson template_tools(const OrderedJson& tools);

}  // namespace bl::openai
