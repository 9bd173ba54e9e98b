#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/tokenizer_config.h"

namespace bl {

// The parts that a tokenizer is made of, whatever file they came from.
struct TokenizerParts {
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null if the text is a single piece
  std::unique_ptr<TokenModel> model;
  std::optional<PostProcessor> post_processor;  // if none, add_bos and add_eos of the config decide
  Decoder decoder;
  TokenizerConfig config;
  // When decoding, the token for unknown text is written as `unknown_surface`, if it is set
  // (sentencepiece).
  int unknown_id = -1;
  std::optional<std::string> unknown_surface;
};

// Reads a tokenizer.json. `name` is the file, for errors; `config` becomes part of the result.
// Throws kInvalidFile or kUnsupported.
TokenizerParts parse_tokenizer_json(std::string_view json, TokenizerConfig config,
                                    const std::string& name);

// Reads a sentencepiece model file (protobuf) with a BPE or unigram model. Throws kInvalidFile, or
// kUnsupported for word and character models.
TokenizerParts parse_sentencepiece(std::string_view bytes, TokenizerConfig config,
                                   const std::string& name);

}  // namespace bl
