#pragma once
// Applies an architecture's rules to the tensors of a file, which gives the recipes of a
// GgufSource. Used by GgufSource only.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "model/gguf_source.h"

namespace bl {

class GgufPlanner {
 public:
  GgufPlanner(GgufSource& source, const GgufFile& file, const GgufMetadata& metadata);
  void plan();

 private:
  // A tensor seen as a stack of matrices.
  struct Extent {
    std::int64_t outer = 1;
    std::int64_t rows = 1;
    std::int64_t columns = 1;
    bool stacked = false;  // the file's tensor has a dimension for `outer`
    bool vector = false;   // each matrix is one row (or one column) of values
  };
  Extent extent_of(const GgufTensor& tensor, bool by_element) const;
  void place(const GgufTensor& tensor);
  void place_by_rule(const GgufTensor& tensor, const GgufTensorRule& rule, std::string_view suffix);
  void place_join(const GgufJoin& join, std::int64_t block);
  void place_list(const std::string& to, const std::string& key, const Shape& shape);
  std::int64_t part_rows(const GgufTensor& tensor, const std::string& rows, std::int64_t of) const;
  std::int64_t rotary_heads(const GgufTensor& tensor, GgufTensorRule::Rotary rotary,
                            std::int64_t rows) const;
  void add_expert_tensors(const GgufTensor& tensor, GgufRecipe recipe, const Extent& extent,
                          const std::string& to);
  void check_readable(const GgufTensor& tensor) const;
  [[noreturn]] void wrong_shape(const GgufTensor& tensor, std::string_view wanted) const;

  GgufSource& source_;
  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::int64_t layers_;
  std::int64_t blocks_;
  std::map<std::string, bool, std::less<>> joined_;  // tensors (with {i}) that joins consume
};

}  // namespace bl
