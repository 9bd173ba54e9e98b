#pragma once
// tokenizer.json and tokenizer_config.json from the vocabulary of a GGUF file.
//
// The file names its pre-tokenizer (tokenizer.ggml.pre) instead of describing it; what each name
// means is data (archs/gguf-tokenizers.json). Properties that a GGUF vocabulary cannot express
// (spaces that an added token swallows) come from the architecture's description, else they are
// off.

#include <string>

#include "base/json_fwd.h"
#include "model/gguf_config.h"

namespace bl {

// Returns tokenizer.json, or an empty text if the file holds no vocabulary. Throws kUnsupported for
// unknown kinds and pre-tokenizers, kInvalidFile for lists that do not match each other and for
// text that is not UTF-8. `tables`: archs/gguf-tokenizers.json.
std::string gguf_tokenizer_json(const GgufMetadata& metadata, const Json& tables);

// Returns tokenizer_config.json: special tokens by text, add_bos_token, add_eos_token,
// chat_template.
Json gguf_tokenizer_config(const GgufMetadata& metadata, const Json& tables);

}  // namespace bl
