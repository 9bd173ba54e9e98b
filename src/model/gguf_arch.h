#pragma once
// archs/gguf-NAME.json for files whose general.architecture is NAME: which model their metadata
// describes and where each tensor belongs. docs/formats/gguf.md explains the keys.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/arch_library.h"

namespace bl {

// Where the rows of one tensor of the file go.
struct GgufTensorRule {
  // How the rows of query and key projections are ordered within a head.
  enum class Rotary {
    kAsStored,
    kQuery,  // rotated pairs are neighbours in the file and half a head apart in the model
    kKey,
  };
  // A run of rows that becomes a tensor of its own in the model.
  struct Part {
    std::string to;
    std::string rows;  // "query", "key", "value" or "half"
    Rotary rotary = Rotary::kAsStored;
  };
  std::string to;           // {i}: block; {e}: one tensor per expert; empty: not a weight
  std::vector<Part> parts;  // instead of `to`
  Rotary rotary = Rotary::kAsStored;
  bool transpose = false;  // swaps the last two dimensions
  bool flatten = false;    // the experts' rows become one matrix
  float add = 0;           // added to every value
};

// A tensor of the model that is made from several tensors of the file.
struct GgufJoin {
  std::string to;
  std::vector<std::string> of;  // equal shapes, joined along the rows of each expert
  bool interleave = false;      // first row of each, then second row of each, …
  bool transpose = false;       // after joining
};

struct GgufArch {
  std::string name;   // "gguf-NAME.json", for messages
  Json architecture;  // a rule (gguf_config.h) that gives the HF architecture
  Json config;        // object: key of config.json → rule
  Json tokenizer;     // object: what this family's vocabularies need beyond the file
  std::map<std::string, GgufTensorRule, std::less<>> tensors;
  std::vector<GgufJoin> joins;
  // Tensors of one element in each block, by name, and the metadata keys of lists that hold one
  // float per block: `values` have shape [1], `scalars` have no dimensions.
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> scalars;

  // Returns nullptr if no rule names this tensor. `name` has {i} in place of the block number.
  const GgufTensorRule* rule_for(std::string_view name) const;
};

// Throws kUnsupported, listing the known architectures, if there is no such document. Messages name
// `file`.
GgufArch find_gguf_arch(const ArchLibrary& library, std::string_view architecture,
                        const std::string& file);

}  // namespace bl
