#pragma once
// What archs/gguf-NAME.json says about files whose general.architecture is NAME: which model their
// metadata describes and where each tensor belongs. docs/formats/gguf.md explains the keys.

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
    kQuery,  // pairs lie side by side in the file, half a head apart in the model
    kKey,
  };
  // A run of rows that is a tensor of its own in the model.
  struct Part {
    std::string to;
    std::string rows;  // "query", "key", "value" or "half"
    Rotary rotary = Rotary::kAsStored;
  };
  std::string to;           // {i}: block; {e}: one tensor an expert; empty: not a weight
  std::vector<Part> parts;  // instead of `to`
  Rotary rotary = Rotary::kAsStored;
  bool transpose = false;  // the last two dimensions change places
  bool flatten = false;    // the experts' rows become one matrix
  float add = 0;           // to every value
};

// A tensor of the model that is made of several of the file.
struct GgufJoin {
  std::string to;
  std::vector<std::string> of;  // equal shapes, joined along the rows of each expert
  bool interleave = false;      // first row of each, second row of each, …
  bool transpose = false;       // afterwards
};

struct GgufArch {
  std::string name;   // "gguf-NAME.json", for messages
  Json architecture;  // a rule (gguf_config.h) that gives the HF architecture
  Json config;        // object: key of config.json → rule
  Json tokenizer;     // object: what this family's vocabularies need beyond the file
  std::map<std::string, GgufTensorRule, std::less<>> tensors;
  std::vector<GgufJoin> joins;
  // Names of tensors of one element in each block, and metadata keys of lists with one float a
  // block; with dimensions [1] and without dimensions.
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> scalars;

  // nullptr where no rule names this tensor. `name` has {i} in place of the block number.
  const GgufTensorRule* rule_for(std::string_view name) const;
};

// Throws kUnsupported, saying what is known, where there is no such document. `file` is named in
// the message.
GgufArch find_gguf_arch(const ArchLibrary& library, std::string_view architecture,
                        const std::string& file);

}  // namespace bl
