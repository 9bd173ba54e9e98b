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

// What a tokenizer is put together from, whatever file it came from.
struct TokenizerParts {
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null: the text is one piece
  std::unique_ptr<TokenModel> model;
  std::optional<PostProcessor> post_processor;  // none: add_bos and add_eos of the config decide
  Decoder decoder;
  TokenizerConfig config;
  // The token of unknown text is written as this when decoding (sentencepiece).
  int unknown_id = -1;
  std::optional<std::string> unknown_surface;
};

// From a tokenizer.json. `name` is the file, for errors; the config goes into the parts.
TokenizerParts parse_tokenizer_json(std::string_view json, TokenizerConfig config,
                                    const std::string& name);

// From a sentencepiece model file (protobuf): BPE, unigram, word or character model.
TokenizerParts parse_sentencepiece(std::string_view bytes, TokenizerConfig config,
                                   const std::string& name);

}  // namespace bl
