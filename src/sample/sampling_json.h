#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "sample/sampling_params.h"

namespace bl {

// What to do with keys that are no sampling parameters.
enum class UnknownKeys { kIgnore, kRefuse };

// Sets the fields that the object has; the others keep their values, and so do those that are null.
// Names are those of SamplingParams::visit() and visit_rest(), and those that existing clients use
// for them (alias table in sampling_json.cc). Read in several ways:
//   stop              a text, or a list of texts and token ids (the latter go to stop_tokens)
//   logprobs          true, false, or how many of the likeliest tokens as well
//   logit_bias        {"id": bias}, or a list of [id, bias]; "-inf" bars the token
//   banned_tokens,    a list of ids and of texts, each exactly what one token says (" yes"), or
//   allowed_tokens    ids in a text "1, 2, 3"; of allowed_tokens at least one
//   stop_token_ids …  a list of ids, or a text "1, 2, 3"
//   top_k, seed       -1 stands for none (the seed keeps its value); seeds may be negative
//   temperature etc.  whole numbers may be written 50.0; nothing else is converted
// Returns the names of the fields that were set, sorted. Throws kInvalidArgument with `what` (such
// as "preset creative.json" or "the request") and the key in front. Values are not validated: call
// validate() when all sources have been read.
std::vector<std::string> read_sampling(const Json& object, std::string_view what,
                                       UnknownKeys unknown, SamplingParams& params);

// The fields that differ from `base`, as read_sampling() reads them.
Json write_sampling(const SamplingParams& params, const SamplingParams& base);

// A field's value as a list, for fields that take lists: a lone one as a list of one, ids in a text
// ("1, 2, 3") as ids. Throws kInvalidArgument for a text that should be ids and is not, as
// read_sampling() does.
Json listed_sampling(const Json& value, std::string_view what, const std::string& key);

// The name under which a field is known to SamplingParams; the key itself where it is no alias.
std::string_view sampling_key(std::string_view key);

// Whether read_sampling() knows the key.
bool is_sampling_key(std::string_view key);

}  // namespace bl
