#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "model/checkpoint_names.h"

namespace bl {

// A source whose tensors have the names that an architecture gives them. Where two tensors lead to
// one name, the one whose name had to be changed less takes precedence. The source must outlive
// this.
class RenamedSource : public TensorSource {
 public:
  RenamedSource(const TensorSource& source, const CheckpointNames& names);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::vector<std::string> refused_names() const override;
  HostArray read(std::string_view name) const override;
  HostArray read_seeded(std::string_view name) const override;
  void done_with(std::string_view name) const override;

  // What the underlying source calls it. Throws kNotFound.
  const std::string& original(std::string_view name) const;

 private:
  struct Original {
    std::string name;  // in the source
    CheckpointNames::Distance distance = CheckpointNames::Distance::kSame;
    bool refused = false;  // TensorSource::refused_names()
  };
  void add(const CheckpointNames& names, const std::string& name, bool refused);
  std::vector<std::string> listed(bool refused) const;
  const TensorSource& source_;
  std::map<std::string, Original, std::less<>> originals_;  // by the new name
};

}  // namespace bl
