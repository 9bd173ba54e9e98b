#pragma once
#include <cstdint>
#include <vector>

#include "model/model_spec.h"

namespace bl {

// Side layers that guess how a model's texts go on from its hidden states, as a value: a
// description of the kind "draft" joined with its config, checked against the model.
//
// At each position p of a text its feature is norm(combine · [h_1(p) … h_n(p)]), where h_i is what
// the model's stream holds behind `states[i]` of its blocks, normalised where there is a norm. Each
// layer keeps keys and values of the features of all positions; a stretch of tokens behind the text
// (its last one, then masks) is embedded, runs through the layers, and what the model's head says
// of a mask is the guess for its position.
//
// A chain (multi-token prediction) guesses one token at a time instead: the feature at p is
// combine · [embed_norm(embedding of token p), norm(h(p − 1))], where h is what the model's head
// reads. Its keys and values are those of the layer's input at p, and what the layer says of it is
// both the guess for p + 1, by way of the head, and h(p) for the next one.
struct DraftSpec {
  ModelSpec layers;  // blocks, rotations and final norm; no embedding, no head
  bool chain = false;
  std::vector<std::int32_t> states;  // StateRows::blocks of what is read, in order
  std::optional<NormSpec> norm;      // of the features, or of the states of a chain
  std::optional<NormSpec>
      state_norm;                   // of each state before it is combined, with weights of its own
  bool normalise_features = false;  // by each layer's norm, too, as its stream; a chain's are
  std::optional<NormSpec> embed_norm;
  std::int64_t stretch = 0;       // tokens, 2 or more; of a chain: its guesses and the text's last
  std::int32_t mask = 0;          // below the rows of the model's embedding; not of a chain
  float embed_multiplier = 1.0f;  // of a row of the model's embedding, and nothing else is
  float head_multiplier = 1.0f;
  float head_softcap = 0.0f;

  // Of what is kept of a token's states.
  std::int64_t width() const { return static_cast<std::int64_t>(states.size()) * layers.hidden; }
  // Of what `combine` reads.
  std::int64_t combined() const { return chain ? 2 * layers.hidden : width(); }
};

// Throws as build_model_spec does, and kInvalidArgument, naming both, where the drafter was made
// for another model than `target`: another width, fewer layers, a mask outside the vocabulary.
DraftSpec build_draft_spec(const ArchLibrary& archs, const HfConfig& config,
                           const ModelSpec& target);

// Of a model's own layers for multi-token prediction. Throws kUnsupported where the architecture
// has none, kInvalidArgument where this model has none, kInvalidFile.
DraftSpec build_mtp_spec(const HfConfig& config, const ModelSpec& model);

}  // namespace bl
