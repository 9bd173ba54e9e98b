#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/request_fields.h"
#include "base/json.h"
#include "engine/request.h"
#include "server/served_model.h"

namespace bl::server {

class ServerState;

// What the native routes of other programs (llama-server, KoboldCpp) have in common. Their bodies
// are rewritten with the names of sampling parameters that are known here, and read from there on
// as OpenAI's are.

// What a native request starts from: what the model's requests leave open, with penalties that
// count the prompt and the answer.
SamplingParams native_sampling(const ServedModel& model);

// Renames a member that is given; the new name's value is replaced.
void rename_member(OrderedJson& body, const char* from, const char* to);

// "dynatemp_range" around "temperature" becomes min_temp and max_temp.
void spread_temperature(OrderedJson& body, const SamplingParams& sampling);

// Replaces "sampler_order" by `names`, which are names of stages here, and switches off every stage
// that it does not name: in these programs, a list of samplers is the list of all that run.
void set_sampler_order(OrderedJson& body, const std::vector<std::string>& names);

// The number of a member; `otherwise` where it is not given. Throws RequestError for anything but a
// whole number.
std::int64_t read_number(const OrderedJson& body, const char* key, std::int64_t otherwise);
// The text of a member; empty where it is not given. Throws RequestError for anything else.
std::string read_text(const OrderedJson& body, const char* key);

// The model that a body names, or the one that is loaded. Throws HttpError.
std::shared_ptr<ServedModel> native_model(ServerState& state, const OrderedJson& body);

// Throws openai::ContextOverflow where a prompt leaves no room for an answer.
void check_prompt_fits(std::size_t tokens, ServedModel& model);

}  // namespace bl::server
