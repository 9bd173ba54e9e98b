#include "api/ollama/model_card.h"

#include "api/ollama/rfc3339.h"
#include "base/json.h"

namespace bl::ollama {
namespace {

Json details(const ModelCard& card) {
  return {{"parent_model", ""},
          {"format", card.format},
          {"family", card.architecture},
          {"families", {card.architecture}},
          {"parameter_size", card.parameters},
          {"quantization_level", card.quantization}};
}

}  // namespace

Json tags_entry(const ModelCard& card) {
  return {{"name", card.name},     {"model", card.name}, {"modified_at", rfc3339(card.modified)},
          {"digest", card.digest}, {"size", card.bytes}, {"details", details(card)}};
}

Json running_entry(const ModelCard& card, std::int64_t expires) {
  Json entry = tags_entry(card);
  entry.erase("modified_at");
  entry["size"] = card.device_bytes + card.host_bytes;
  entry["size_vram"] = card.device_bytes;
  entry["expires_at"] = rfc3339(expires);
  entry["context_length"] = card.context;
  return entry;
}

Json shown(const ModelCard& card) {
  Json capabilities = {"completion"};
  if (card.calls_tools) capabilities.push_back("tools");
  if (card.thinks) capabilities.push_back("thinking");
  const std::string& family = card.architecture;
  return {{"modelfile", ""},
          {"parameters", ""},
          {"license", ""},
          {"template", card.chat_template},
          {"details", details(card)},
          {"model_info",
           {{"general.architecture", family},
            {family + ".context_length", card.model_context},
            {family + ".block_count", card.layers},
            {family + ".embedding_length", card.hidden},
            {family + ".vocab_size", card.vocabulary}}},
          {"capabilities", capabilities},
          {"modified_at", rfc3339(card.modified)}};
}

}  // namespace bl::ollama
