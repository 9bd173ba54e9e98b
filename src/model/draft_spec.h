#pragma once
#include <cstdint>
#include <vector>

#include "model/model_spec.h"

namespace bl {

// Side layers that guess from a model's hidden states how its texts continue, as a value: a
// description of the kind "draft" joined with its config and checked against the model.
//
// The feature at position p of a text is norm(combine · [h_1(p) … h_n(p)]), where h_i is the
// model's residual stream after `states[i]` of its blocks, normalised if there is a norm. Each
// layer keeps keys and values of the features of all positions. A stretch of tokens (the text's
// last one, then masks) is embedded and runs through the layers; the model's head turns the result
// at a mask into the guess for its position.
//
// A chain (multi-token prediction) guesses one token at a time instead: the feature at p is
// combine · [embed_norm(embedding of token p), norm(h(p − 1))], where h is the input of the model's
// head. Keys and values at p come from the layer's input there. The layer's output at p is h(p) for
// the next token, and the head turns it into the guess for p + 1.
struct DraftSpec {
  ModelSpec layers;  // blocks, rotations and final norm; no embedding, no head
  bool chain = false;
  std::vector<std::int32_t> states;    // StateRows::blocks of the states that are read, in order
  std::optional<NormSpec> norm;        // of the features; for a chain, of the states
  std::optional<NormSpec> state_norm;  // of each state before `combine`, each with its own weights
  bool normalise_features = false;  // each layer's norm applies to features, too (chains: always)
  std::optional<NormSpec> embed_norm;
  std::int64_t stretch = 0;       // tokens, at least 2; for a chain: its guesses and the last token
  std::int32_t mask = 0;          // a row of the model's embedding; unused by chains
  float embed_multiplier = 1.0f;  // the only factor on a row of the model's embedding
  float head_multiplier = 1.0f;
  float head_softcap = 0.0f;

  // Width of the states that are kept of a token.
  std::int64_t width() const { return static_cast<std::int64_t>(states.size()) * layers.hidden; }
  // Width of the input of `combine`.
  std::int64_t combined() const { return chain ? 2 * layers.hidden : width(); }
};

// Throws as build_model_spec does, and kInvalidArgument, naming both, if the drafter was made for
// another model than `target`: another width, fewer layers, a mask outside the vocabulary.
DraftSpec build_draft_spec(const ArchLibrary& archs, const HfConfig& config,
                           const ModelSpec& target);

// Describes a model's own layers for multi-token prediction. Throws kUnsupported if the
// architecture has none, kInvalidArgument if this model has none, and kInvalidFile.
DraftSpec build_mtp_spec(const HfConfig& config, const ModelSpec& model);

}  // namespace bl
