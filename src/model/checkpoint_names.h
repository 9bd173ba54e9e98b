#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/arch_spec.h"

namespace bl {

using RenameRules = std::vector<std::pair<std::string, std::string>>;

// Applies `rules` in order: every occurrence of `from` becomes `to`; a leading "^" anchors `from`
// at the start.
std::string renamed(std::string name, const RenameRules& rules);

// Turns the names that tensors have in checkpoints into those that an architecture gives them.
//
// Apart from the rename rules of the architecture, a checkpoint may lack the prefix that all names
// but the head's have (ArchSpec::base; exports of a model without its head do), or have those of a
// multimodal model around its text model. As in transformers, prefixes are added and taken away
// only where that leads to a name that the architecture knows.
class CheckpointNames {
 public:
  CheckpointNames() = default;
  explicit CheckpointNames(const ArchSpec& arch);

  // How far a name is from the architecture's own; where two tensors lead to one name, the nearer
  // one counts.
  enum class Distance { kSame, kRenamed, kPrefix };
  struct Known {
    std::string name;
    Distance distance = Distance::kSame;
  };
  Known known_as(const std::string& name) const;

 private:
  bool knows(std::string_view name) const;
  // The name without the prefixes of models around the decoder.
  std::string_view bare(std::string_view name) const;

  RenameRules rules_;
  std::string base_;                // "model."
  std::vector<std::string> roots_;  // how the names begin that the architecture knows
  std::string layers_;              // how the names of blocks begin, up to the number
};

}  // namespace bl
