#pragma once
#include <cstdint>
#include <vector>

#include "model/model_spec.h"

namespace bl {

// Side layers that guess how a model's texts go on from its hidden states, as a value: a
// description of the kind "draft" joined with its config, checked against the model.
//
// At each position p of a text its feature is norm(combine · [h_1(p) … h_n(p)]), where h_i is what
// the model's stream holds behind `states[i]` of its blocks. Each layer keeps keys and values of
// the features of all positions; a block of tokens behind the text (its last one, then masks) is
// embedded, runs through the layers, and what the model's head says of a mask is the guess for its
// position.
struct DraftSpec {
  ModelSpec layers;                   // blocks, rotations and final norm; no embedding, no head
  std::vector<std::int32_t> states;   // StateRows::blocks of what is read, in order
  std::optional<NormSpec> norm;       // of the features
  std::int64_t block = 0;             // tokens of a block, 2 or more
  std::int32_t mask = 0;              // below the rows of the model's embedding
  float embed_multiplier = 1.0f;      // of a row of the model's embedding, and nothing else is
  float head_multiplier = 1.0f;
  float head_softcap = 0.0f;

  std::int64_t width() const {
    return static_cast<std::int64_t>(states.size()) * layers.hidden;
  }
};

// Throws as build_model_spec does, and kInvalidArgument, naming both, where the drafter was made
// for another model than `target`: another width, fewer layers, a mask outside the vocabulary.
DraftSpec build_draft_spec(const ArchLibrary& archs, const HfConfig& config,
                           const ModelSpec& target);

}  // namespace bl
