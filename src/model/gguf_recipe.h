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
// The result is a stack of `outer` matrices [rows, columns] (a vector is a matrix of one column, or
// of one row). Row r of matrix o is a row of one source; every source has `source_rows` rows per
// matrix.
struct GgufRecipe {
  Shape shape{};  // shape of the result
  std::vector<const GgufTensor*> sources{};
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t source_rows = 1;
  std::int64_t first_outer = 0;  // first matrix of the sources
  std::int64_t first_row = 0;    // first row of each matrix of the sources
  // If not 0, each matrix has this many heads, within which pairs of neighbouring rows of the file
  // move half a head apart (the two conventions of rotary embeddings).
  std::int64_t rotary_heads = 0;
  bool interleave = false;  // rows alternate between the sources; else sources are concatenated
  bool transpose = false;   // transposes each matrix at the end
  float add = 0;

  // A source, and one of its rows counted over all its matrices.
  struct Row {
    std::size_t source = 0;
    std::int64_t row = 0;
  };
  Row row_at(std::int64_t matrix, std::int64_t row) const;
};

// Makes binary16 values by recipes, with threads that start at the first large tensor.
class GgufExpander {
 public:
  // Passes the result to `sink` in order, in pieces of whole rows (or matrices) of at most some
  // tens of MB. Throws kInvalidFile, with a message that begins with `name`, if a finite value does
  // not fit binary16.
  using Sink = std::function<void(std::span<const Half> piece)>;
  void stream(const GgufRecipe& recipe, const std::string& name, const Sink& sink) const;
  // Makes the whole result at once; out.size() == recipe.shape.elements().
  void expand(const GgufRecipe& recipe, const std::string& name, std::span<Half> out) const;

 private:
  // Makes the rows from `begin` on, counted over all matrices, without transposing.
  void make_rows(const GgufRecipe& recipe, const std::string& name, std::int64_t begin,
                 std::span<Half> out) const;
  void make_matrix(const GgufRecipe& recipe, const std::string& name, std::int64_t matrix,
                   std::span<Half> out) const;

  mutable std::mutex mutex_;  // the pool has one caller at a time
  mutable std::unique_ptr<ThreadPool> pool_;
};

}  // namespace bl
