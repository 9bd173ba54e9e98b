#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"

namespace bl {

// Modules of a model that come from another one's files, in whatever format they have there.
struct TensorOverride {
  std::string pattern;  // of the names of modules ("model.layers.3.mlp.up_proj"), as fnmatch(3) has
                        // it: * for anything
  std::shared_ptr<const TensorSource> source;
  std::string from;  // for messages
};

// A model some of whose modules are another one's: of a module all tensors come from one source,
// that of the last override that fits and has it. What the model does not have stays out.
class OverriddenSource : public TensorSource {
 public:
  // Throws kInvalidArgument for an override that fits nothing.
  OverriddenSource(std::shared_ptr<const TensorSource> base, std::vector<TensorOverride> overrides);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

 private:
  const TensorSource& source_of(std::string_view name) const;

  std::shared_ptr<const TensorSource> base_;
  std::vector<TensorOverride> overrides_;
  std::map<std::string, const TensorSource*, std::less<>> owners_;  // of modules
};

}  // namespace bl
