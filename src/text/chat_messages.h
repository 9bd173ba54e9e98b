#pragma once
#include "base/json_fwd.h"

namespace bl {

// Messages of a chat request in OpenAI's form, as templates of text models take them: a content
// that is a list of text parts becomes one text, a line a part. Everything else of a message is
// kept for the template to use. Throws kInvalidArgument, naming the message, where it is no list of
// messages with roles, where a part is no text, or where tool_calls is no list of objects whose
// functions have names.
OrderedJson template_messages(const OrderedJson& messages);

// The tools of such a request, as templates take them; null where there are none. Throws
// kInvalidArgument where they are no list of objects whose functions have names.
OrderedJson template_tools(const OrderedJson& tools);

}  // namespace bl
