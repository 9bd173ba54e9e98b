#pragma once
// Embeddings of texts: final hidden states of prompts, pooled to one vector for each text.
//
// The prompts are computed between the steps of running requests, a bounded number of tokens at a
// time, so that these requests go on meanwhile. Nothing is left in the prefix cache.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/prefix_files.h"
#include "engine/request.h"
#include "model/adapter_packer.h"

namespace bl {

// Which hidden states of a text become its vector.
enum class Pooling {
  kMean,   // the mean over all tokens
  kLast,   // that of the last token
  kFirst,  // that of the first token ("cls")
};
// "mean", "last" or "cls"; nothing for other names.
std::optional<Pooling> pooling_of(std::string_view name);

// Returns the pooling that a model folder in the layout of sentence-transformers asks for
// (modules.json and the config.json of its pooling module); nothing where the folder has no such
// files. Throws kInvalidFile for broken ones, and kUnsupported for a pooling or a further layer
// that is not implemented.
std::optional<Pooling> read_pooling(const std::filesystem::path& folder);

struct EmbedRequest {
  std::vector<std::vector<std::int32_t>> texts{};  // token ids, at least one for each text
  Pooling pooling = Pooling::kLast;
  bool normalize = true;  // scales each vector to length 1
  std::vector<AdapterChoice> adapters{};
  std::function<bool()> cancelled{};  // asked on the caller's thread between steps; may be empty
};

// Computes one vector [hidden] for each text of a checked request: the input of the model's head,
// pooled. Waits for the engine's thread. Throws kCancelled, kUnsupported where the model has no
// hidden states to give, kLimit where the cache has no room for a text for a long time, kDevice for
// states that are no numbers.
std::vector<std::vector<float>> embed_texts(const CallEngine& call, const EmbedRequest& request,
                                            const AdapterMix& adapters);

}  // namespace bl
