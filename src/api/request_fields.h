#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/request.h"
#include "sample/constraint_spec.h"
#include "sample/sampling_params.h"
#include "sample/sampling_preset.h"

namespace bl::openai {

// Values for what the body of a request leaves open.
struct RequestDefaults {
  ConstraintSpec constraint{};             // the form of answers
  std::optional<SamplingPreset> preset{};  // fills in parameters, or forces them
  std::vector<AdapterChoice> adapters{};   // also the weights of adapters that a body only names
  // Special tokens that messages spell become tokens. Otherwise only the template makes them.
  bool special_tokens_in_messages = false;
  bool prefill_assistant = false;   // a chat whose last message is an assistant's goes on with it
  bool verbose = false;             // answers to chats tell the prompt
  std::optional<bool> reasoning{};  // whether answers begin with it; nothing: the template decides
  bool separate_reasoning = true;   // reasoning stands in a field of its own; else it is content
  // An object with variables for the chat template, which win over `reasoning`; null: none.
  std::shared_ptr<const OrderedJson> template_variables{};
};

// The fields that chat and text completions have in common.
struct RequestFields {
  std::string model{};  // as the client calls it
  bool stream = false;
  bool include_usage = false;   // a stream has a last chunk with the usage
  SamplingParams sampling{};    // validated, but for what depends on the vocabulary
  ConstraintSpec constraint{};  // validated, but not compiled
  std::vector<AdapterChoice> adapters{};
  bool skip_special = true;
  // Only requests with the same text here share cached prompts, so that nobody learns from how soon
  // an answer begins what others have asked.
  std::string cache_salt{};
  bool prompt_only = false;  // max_tokens is 0: the prompt is computed, and nothing follows it
  std::vector<std::string> unknown{};  // names of the fields that have no meaning here

  // A request for the engine with these fields and the ids of a prompt.
  Request engine_request(std::vector<std::int32_t> prompt) const;
};

// Reads these fields from a body, which is an object. `sampling` has the values of parameters that
// neither the body nor the preset sets, the seed among them: SamplingParams::plain(), or what the
// model's authors recommend (GenerationDefaults::request). Does not look for unknown fields. Throws
// RequestError for a wrong field, and for a known one that would change the answer but is not
// implemented (kUnsupported).
RequestFields read_request_fields(const OrderedJson& body, const RequestDefaults& otherwise,
                                  const SamplingParams& sampling);

// Returns the names of a body's fields that are not null and that neither read_request_fields()
// nor the kind of request knows. `own`: the fields that the kind of request has. Fields that only
// tell a service who asks, or how to store and bill the answer, are known.
std::vector<std::string> unknown_fields(const OrderedJson& body, std::span<const char* const> own);

// Throws RequestError (kUnsupported) for a field that has one of these names and a value other than
// those by which clients leave it out.
void refuse_fields(const OrderedJson& body, std::span<const char* const> names);

// Returns a member of an object; null where there is none or it is JSON's null, which clients send
// for fields that they leave open.
const OrderedJson* given(const OrderedJson& object, const char* key);

// Returns a member that is true or false; `otherwise` where it is not given. `path` is the member's
// path in the body, as "stream_options.include_usage". Throws RequestError for anything else.
bool read_flag(const OrderedJson& object, const std::string& path, bool otherwise);

}  // namespace bl::openai
