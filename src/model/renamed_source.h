#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/tensor_source.h"

namespace bl {

// A source seen through an architecture's rename rules: [from, to], every occurrence replaced, in
// order; a leading "^" anchors `from` at the start. A name that already reads as the rules want
// wins over one that was changed into it. The source must outlive this.
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
  // What the source calls it. Throws kNotFound.
  std::string_view name_read(std::string_view name) const;

  const TensorSource& source_;
  std::map<std::string, std::string, std::less<>> originals_;  // renamed → as in the source
};

std::string renamed(std::string name,
                    const std::vector<std::pair<std::string, std::string>>& rules);

}  // namespace bl
