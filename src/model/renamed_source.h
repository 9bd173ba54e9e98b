#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/tensor_source.h"

namespace bl {

// A source seen through an architecture's rename rules: for each [from, to] in order, every
// occurrence is replaced; a leading "^" anchors `from` at the start. A name that needs no change
// takes precedence over one that is changed into it. The source must outlive this.
class RenamedSource : public TensorSource {
 public:
  RenamedSource(const TensorSource& source,
                const std::vector<std::pair<std::string, std::string>>& rules);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  HostArray read_seeded(std::string_view name) const override;
  void done_with(std::string_view name) const override;

 private:
  const std::string* original(std::string_view name) const;
  // The name in the underlying source. Throws kNotFound.
  std::string_view name_read(std::string_view name) const;

  const TensorSource& source_;
  std::map<std::string, std::string, std::less<>> originals_;  // new name → name in the source
};

std::string renamed(std::string name,
                    const std::vector<std::pair<std::string, std::string>>& rules);

}  // namespace bl
