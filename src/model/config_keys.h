#pragma once
// No key of config.json is dropped silently: it is read, or known to have no effect, or refused, or
// named in a warning. archs/common-keys.json lists the keys without effect, with reasons.

#include <string>
#include <string_view>
#include <vector>

#include "model/arch_spec.h"
#include "model/hf_config.h"
#include "model/model_spec.h"

namespace bl {

// Gives the config what an architecture says about look-ups: scopes, other names of keys, and the
// values of absent keys, which are those of transformers' config class. Throws kUnsupported for a
// kind of text model that the architecture does not describe.
void prepare_config(const ArchSpec& arch, HfConfig& config);

// Returns the full paths of the keys that nothing read and nobody knows, sorted. Nulls say nothing.
// Call it when the whole config has been read. Throws kUnsupported, naming the key, for an option
// of transformers' config class that the architecture does not read and that differs from its
// default.
std::vector<std::string> unknown_keys(const ArchSpec& arch, const HfConfig& config);

// Names a model's unknown keys in one line on standard error, if there are any.
void warn_of_unknown_keys(const ModelSpec& spec);

// Returns the end of a message about sizes that do not fit, which names the keys that may be wrong:
// "; config.json says num_experts 8; absent keys have the defaults of LlamaForCausalLM:
// num_attention_heads 32". A key that config.json has is named if its value is in the message.
std::string note_of_sizes(const HfConfig::Sizes& sizes, const std::string& architecture,
                          std::string_view message);

// Whether `text` is what `pattern` says, in which each `*` stands for any text.
bool matches_pattern(std::string_view text, std::string_view pattern);

}  // namespace bl
