#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"

namespace bl {

// Modules of a model that are taken from another model's files, in whatever format they have there.
struct TensorOverride {
  std::string pattern;  // of module names ("model.layers.3.mlp.up_proj"), as in fnmatch(3)
  std::shared_ptr<const TensorSource> source;
  std::string from;  // for messages
};

// A model with some modules taken from other models. All tensors of a module come from one source:
// that of the last override that matches and has the module. Modules that the model lacks are not
// added.
class OverriddenSource : public TensorSource {
 public:
  // Throws kInvalidArgument for an override that matches no module.
  OverriddenSource(std::shared_ptr<const TensorSource> base, std::vector<TensorOverride> overrides);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::vector<std::string> refused_names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

 private:
  using List = std::function<std::vector<std::string>(const TensorSource&)>;
  // What `list` gives for each source, without the names that another source has.
  std::vector<std::string> owned(const List& list) const;
  const TensorSource& source_of(std::string_view name) const;

  std::shared_ptr<const TensorSource> base_;
  std::vector<TensorOverride> overrides_;
  std::map<std::string, const TensorSource*, std::less<>> owners_;  // by module
};

}  // namespace bl
