#pragma once
#include <string>
#include <vector>

#include "engine/session_facts.h"

namespace bl::server {

// What clients are told about a model, as it was loaded.
struct ModelCard {
  SessionFacts facts{};
  bool generates = true;      // otherwise it only embeds texts
  bool has_template = false;  // answers chats
  bool has_tools = false;
  bool has_reasoning = false;
  std::string chat_template{};  // its text; empty: none

  // "completion", "chat", "tools", "reasoning", "embeddings": what requests may ask for.
  std::vector<std::string> capabilities() const;
};

}  // namespace bl::server
