#pragma once
#include <map>
#include <string>

#include "model/model_loader.h"
#include "model/renamed_source.h"

namespace bl {

// The names that a model's own files give, or would give, to the tensors of a result: other readers
// know an architecture by these. `files` must outlive this.
class SourceNames {
 public:
  SourceNames(const ModelFiles& files, const ModelLoader& loader);
  // `name`: as the architecture has it. It is returned as it is where nothing else leads to it.
  std::string name_of(const std::string& name) const;

 private:
  CheckpointNames names_;
  RenamedSource source_;
  std::map<std::string, std::string> neighbours_;  // a tensor of the files, for each module
};

}  // namespace bl
