#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "format/gguf_file.h"
#include "tensor/float16.h"
#include "tensor/shape.h"

namespace bl {

// How one tensor of the model is made from rows of tensors of a GGUF file.
//
// The result is a stack of `outer` matrices of [rows, columns] (a vector is rows of one column, or
// one row). Row r of matrix o is a row of one source; sources all have `source_rows` rows a matrix.
struct GgufRecipe {
  Shape shape{};  // of the result
  std::vector<const GgufTensor*> sources{};
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t source_rows = 1;
  std::int64_t first_outer = 0;  // of the sources
  std::int64_t first_row = 0;    // within each matrix of the sources
  // > 0: within each of so many heads, pairs that lie side by side in the file go half a head
  // apart (the two conventions of rotary embeddings).
  std::int64_t rotary_heads = 0;
  bool interleave = false;  // sources take turns; else they follow each other
  bool transpose = false;   // each matrix, at the end
  float add = 0;

  // Which source, and which of its rows counted over all its matrices.
  struct Row {
    std::size_t source = 0;
    std::int64_t row = 0;
  };
  Row row_at(std::int64_t matrix, std::int64_t row) const;
};

// Makes binary16 values by recipes, with a team of threads that starts at the first large tensor.
class GgufExpander {
 public:
  // Hands the result out in order, in pieces of whole rows (or matrices) of some tens of MB at
  // most. Throws kInvalidFile where a finite value does not fit binary16; the
  // message begins with `name`.
  using Sink = std::function<void(std::span<const Half> piece)>;
  void stream(const GgufRecipe& recipe, const std::string& name, const Sink& sink) const;
  // The whole result at once; out.size() == recipe.shape.elements().
  void expand(const GgufRecipe& recipe, const std::string& name, std::span<Half> out) const;

 private:
  // Rows [begin, end) counted over all matrices, not transposed.
  void make_rows(const GgufRecipe& recipe, const std::string& name, std::int64_t begin,
                 std::span<Half> out) const;
  void make_matrix(const GgufRecipe& recipe, const std::string& name, std::int64_t matrix,
                   std::span<Half> out) const;

  mutable std::mutex mutex_;  // of the team: one caller at a time
  mutable std::unique_ptr<ThreadPool> pool_;
};

}  // namespace bl
