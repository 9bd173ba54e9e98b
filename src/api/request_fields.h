#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/request.h"
#include "sample/constraint_spec.h"
#include "sample/sampling_params.h"
#include "sample/sampling_preset.h"

namespace bl::openai {

// What holds where the body of a request says nothing.
struct RequestDefaults {
  ConstraintSpec constraint{};             // the form of answers
  std::optional<SamplingPreset> preset{};  // fills in parameters, or forces them
  std::vector<AdapterChoice> adapters{};   // also the weights of adapters that a body only names
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

  // A request of the engine for a prompt.
  Request engine_request(std::vector<std::int32_t> prompt) const;
};

// Reads these fields of a body. `sampling` holds what parameters are where neither the body nor the
// preset sets them, among them the seed. Fields that nobody knows are ignored. Throws RequestError,
// with the field that is wrong, and kUnsupported for known fields that would change the answer and
// have no effect here.
RequestFields read_request_fields(const OrderedJson& body, const RequestDefaults& otherwise,
                                  const SamplingParams& sampling);

// The member of an object; null where there is none or it is JSON's null, which clients send for
// fields that they leave open.
const OrderedJson* given(const OrderedJson& object, const char* key);

// A member that is true or false; `otherwise` where it is not given. `path` is its name behind that
// of the object, as "stream_options.include_usage". Throws RequestError for the path.
bool read_flag(const OrderedJson& object, const std::string& path, bool otherwise);

}  // namespace bl::openai
