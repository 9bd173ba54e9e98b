#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace bl {

// A tensor that will be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kF16;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes() const;
};
TensorPlan plan_tensor(std::string name, DType dtype, const Shape& shape);

using SafetensorsMetadata = std::map<std::string, std::string>;

// One safetensors file, written in a stream: the header first, so all tensors are planned before,
// then their bytes in the order of tensors(). Appears under its name at commit(), or not at all.
class SafetensorsWriter {
 public:
  // Wider dtypes come first in tensors(), so that every tensor is aligned. Throws kInvalidArgument
  // for a name that occurs twice.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorPlan> tensors,
                    const SafetensorsMetadata& metadata = {});

  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  // The next bytes; a tensor may come in pieces, a piece may not reach beyond its tensor.
  void write(std::span<const std::byte> bytes);
  // All tensors must be complete.
  void commit();

 private:
  void skip_complete();

  std::vector<TensorPlan> tensors_;
  AtomicFile file_;
  std::size_t next_ = 0;    // tensor that is being written
  std::uint64_t left_ = 0;  // bytes of it still to come
};

struct ShardOptions {
  std::string base_name = "model";  // model.safetensors, or model-00001-of-00002.safetensors …
  std::uint64_t max_bytes = std::uint64_t{8192} << 20;  // of tensors in one shard
  bool write_index = true;  // BASE.safetensors.index.json where there are several shards
  SafetensorsMetadata metadata = {};
};

// A model's weights in one file, or in shards of at most max_bytes (a larger tensor stands alone)
// with an index. Nothing appears before commit().
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, std::vector<TensorPlan> tensors, ShardOptions options);

  // In the order in which write() wants them.
  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  void write(std::span<const std::byte> bytes);
  void commit();
  // Names of the files, index included, that commit() makes.
  std::vector<std::string> file_names() const;

 private:
  struct Shard {
    std::string name;
    std::vector<TensorPlan> tensors;
    std::uint64_t bytes = 0;
  };
  void open_shard();

  std::filesystem::path folder_;
  ShardOptions options_;
  std::vector<Shard> shards_;
  std::vector<TensorPlan> tensors_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // opened so far
  std::uint64_t left_ = 0;                                   // bytes of the open shard to come
};

}  // namespace bl
