#pragma once
#include "base/json_fwd.h"

namespace bl {

// Messages of a chat request in OpenAI's form, as templates of text models take them: a content
// that is a list of text parts becomes one text, a line a part. Everything else of a message is
// kept for the template to use. Throws kInvalidArgument, naming the message, where it is no list of
// messages with roles, or where a part is no text.
OrderedJson template_messages(const OrderedJson& messages);

}  // namespace bl
