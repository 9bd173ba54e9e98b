#pragma once
// tokenizer.json and tokenizer_config.json from the vocabulary of a GGUF file.
//
// The file names its pre-tokenizer (tokenizer.ggml.pre) instead of describing it: what each name
// means is data (archs/gguf-tokenizers.json). Properties that a GGUF vocabulary cannot say (spaces
// that an added token swallows) come from the architecture's description, else they are off.

#include <string>

#include "base/json_fwd.h"
#include "model/gguf_config.h"

namespace bl {

// Empty where the file holds no vocabulary. Throws kUnsupported for kinds and pre-tokenizers that
// are not known, kInvalidFile for lists that do not fit each other or text that is not UTF-8.
// `tables`: archs/gguf-tokenizers.json.
std::string gguf_tokenizer_json(const GgufMetadata& metadata, const Json& tables);

// Special tokens by text, add_bos_token, add_eos_token, chat_template.
Json gguf_tokenizer_config(const GgufMetadata& metadata, const Json& tables);

}  // namespace bl
