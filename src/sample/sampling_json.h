#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "sample/sampling_params.h"

namespace bl {

// Whether keys that are not sampling parameters are ignored or an error.
enum class UnknownKeys { kIgnore, kRefuse };

// Sets the fields that the object has; the others, and those that are null, keep their values.
// Names are those of SamplingParams::visit() and visit_rest(), and the aliases that existing
// clients use (kAliases in sampling_json.cc). Clients that talk to several servers send a field
// under several of its names at once, which is right if the values agree. These fields have
// several forms:
//   stop              a text, or a list of texts and token ids (the ids go to stop_tokens)
//   logprobs          true, false, or the number of likeliest tokens to report as well
//   logit_bias        {"id": bias}, or a list of [id, bias]; "-inf" or false bars the token
//   banned_tokens,    a list of ids and of texts, each the exact text of one token (" yes"), or
//   allowed_tokens    ids in a text "1, 2, 3"; an empty list of allowed tokens allows all
//   stop_token_ids …  a list of ids, or a text "1, 2, 3"
//   all lists         also as JSON in a text (list_in_text.h); "stop" and "banned_strings" then
//                     need brackets or two items, since a single text stands for itself
//   top_k, seed       -1 stands for none (the seed keeps its value); seeds may be negative
//   temperature etc.  whole numbers may be written 50.0; nothing else is converted
// What other programs send to switch something off does so: false for a number that has such a
// value (off_values.h), 0 for a switch, an empty text or list, -1 for top_n_sigma, adaptive_target
// and max_tokens.
// Returns the sorted names of the fields that were set. Throws kInvalidArgument with `what` (such
// as "preset creative.json" or "the request") and the key in front. Does not check ranges: call
// validate() once all sources have been read.
std::vector<std::string> read_sampling(const Json& object, std::string_view what,
                                       UnknownKeys unknown, SamplingParams& params);

// Returns the fields that differ from `base`, in the form that read_sampling() reads.
Json write_sampling(const SamplingParams& params, const SamplingParams& base);

// Returns a field's value as a list, for fields that hold lists: a single value becomes a list of
// one, ids in a text ("1, 2, 3") become ids. Throws kInvalidArgument if such a text is malformed,
// as read_sampling() does.
Json listed_sampling(const Json& value, std::string_view what, const std::string& key);

// Returns the name by which SamplingParams knows a key: what it is an alias of, or the key itself.
std::string_view sampling_key(std::string_view key);

// Whether read_sampling() knows the key.
bool is_sampling_key(std::string_view key);

}  // namespace bl
