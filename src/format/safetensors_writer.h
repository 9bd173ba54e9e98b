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

// The name, dtype and shape of a tensor that will be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kF16;
  std::vector<std::int64_t> shape;
  // The size of its data. A negative size or an overflow is a bug.
  std::uint64_t bytes() const;
};
TensorPlan plan_tensor(std::string name, DType dtype, const Shape& shape);

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes one safetensors file as a stream: the header first, so that all tensors must be planned,
// then their bytes in the order of tensors(). The file appears under its name at commit(), or not
// at all. Throws kIo where writing fails.
class SafetensorsWriter {
 public:
  // Sorts the tensors so that wider dtypes come first, which aligns every tensor. Throws
  // kInvalidArgument for a name that occurs twice.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorPlan> tensors,
                    const SafetensorsMetadata& metadata = {});

  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  // Writes the next bytes. A tensor may come in several pieces; a piece must not reach beyond its
  // tensor.
  void write(std::span<const std::byte> bytes);
  // Puts the file in place. All tensors must be complete.
  void commit();

 private:
  void skip_complete();

  std::vector<TensorPlan> tensors_;
  AtomicFile file_;
  std::size_t next_ = 0;    // the tensor that is being written
  std::uint64_t left_ = 0;  // bytes of it that are still missing
};

struct ShardOptions {
  std::string base_name = "model";  // model.safetensors, or model-00001-of-00002.safetensors …
  std::uint64_t max_bytes = std::uint64_t{8192} << 20;  // the limit for the tensors of one shard
  bool write_index = true;  // whether several shards get a BASE.safetensors.index.json
  SafetensorsMetadata metadata = {};
};

// Writes a model's weights into one file, or into shards of at most max_bytes (a larger tensor has
// a shard to itself) with an index. Nothing appears before commit(). Throws as SafetensorsWriter
// does.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, std::vector<TensorPlan> tensors, ShardOptions options);

  // All tensors, in the order in which write() expects their bytes.
  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  void write(std::span<const std::byte> bytes);
  void commit();
  // The names of the files that commit() makes, the index included.
  std::vector<std::string> file_names() const;
  // The bytes of the weight files that commit() makes, headers included, the index not.
  std::uint64_t file_bytes() const;

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
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // the shards that have been opened
  std::uint64_t left_ = 0;  // bytes of the open shard that are still missing
};

}  // namespace bl
