#pragma once
#include <optional>

#include "base/json_fwd.h"

namespace bl::openai {

// Which system messages become text of users' turns.
enum class SystemFolding {
  kLater,  // all behind the first other message; those before it become one
  kAll,
};

// Rewrites the messages of a conversation for a template that refuses system messages, or refuses
// them where they stand: clients put them anywhere. Turns of users that then follow one another
// become one, since the same templates want users and assistants to alternate. Returns nothing if
// that changes nothing. Contents are texts, as template_messages() leaves them.
std::optional<OrderedJson> fold_systems(const OrderedJson& messages, SystemFolding folding);

}  // namespace bl::openai
