#include "format/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

void sort_for_alignment(std::vector<TensorPlan>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorPlan& a, const TensorPlan& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
}

void check_names(const std::vector<TensorPlan>& tensors) {
  std::vector<std::string_view> names;
  for (const TensorPlan& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail(ErrorCode::kInvalidArgument, "tensor {} would be written twice", quoted_name(*twice));
  }
}

// The header's length and JSON, padded with blanks so that the data starts at a multiple of 8.
std::string header_of(const std::vector<TensorPlan>& tensors, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + json_text(Json(metadata));
  std::uint64_t offset = 0;
  for (const TensorPlan& tensor : tensors) {
    const std::uint64_t end = offset + tensor.bytes();
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", json_text(Json(tensor.name)),
                        name_of(tensor.dtype), fmt::join(tensor.shape, ","), offset, end);
    offset = end;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) header += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return header + text;
}

}  // namespace

std::uint64_t TensorPlan::bytes() const {
  std::uint64_t total = size_of(dtype);
  for (const std::int64_t size : shape) {
    BL_CHECK(size >= 0 && !__builtin_mul_overflow(total, static_cast<std::uint64_t>(size), &total));
  }
  return total;
}

TensorPlan plan_tensor(std::string name, DType dtype, const Shape& shape) {
  TensorPlan plan{std::move(name), dtype, {}};
  for (int i = 0; i < shape.rank(); ++i) plan.shape.push_back(shape[i]);
  return plan;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorPlan> tensors,
                                     const SafetensorsMetadata& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  check_names(tensors_);
  sort_for_alignment(tensors_);
  file_.write(header_of(tensors_, metadata));
  if (!tensors_.empty()) left_ = tensors_[0].bytes();
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (left_ == 0 && next_ < tensors_.size()) {
    ++next_;
    if (next_ < tensors_.size()) left_ = tensors_[next_].bytes();
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  BL_CHECK(bytes.size() <= left_);
  file_.write(bytes);
  left_ -= bytes.size();
  skip_complete();
}

void SafetensorsWriter::commit() {
  BL_CHECK(next_ == tensors_.size());
  file_.commit();
}

ShardWriter::ShardWriter(std::filesystem::path folder, std::vector<TensorPlan> tensors,
                         ShardOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  check_names(tensors);
  for (TensorPlan& tensor : tensors) {
    const std::uint64_t bytes = tensor.bytes();
    const bool full =
        !shards_.empty() && !shards_.back().tensors.empty() &&
        bytes > options_.max_bytes - std::min(shards_.back().bytes, options_.max_bytes);
    if (shards_.empty() || full) shards_.emplace_back();
    shards_.back().bytes += bytes;
    shards_.back().tensors.push_back(std::move(tensor));
  }
  if (shards_.empty()) shards_.emplace_back();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    shard.name = shards_.size() == 1 ? options_.base_name + ".safetensors"
                                     : fmt::format("{}-{:05}-of-{:05}.safetensors",
                                                   options_.base_name, i + 1, shards_.size());
    sort_for_alignment(shard.tensors);
    tensors_.insert(tensors_.end(), shard.tensors.begin(), shard.tensors.end());
  }
}

void ShardWriter::open_shard() {
  const Shard& shard = shards_[writers_.size()];
  writers_.push_back(
      std::make_unique<SafetensorsWriter>(folder_ / shard.name, shard.tensors, options_.metadata));
  left_ = shard.bytes;
}

void ShardWriter::write(std::span<const std::byte> bytes) {
  while (left_ == 0 && !bytes.empty()) {
    BL_CHECK(writers_.size() < shards_.size());
    open_shard();
  }
  if (bytes.empty()) return;
  BL_CHECK(bytes.size() <= left_);
  writers_.back()->write(bytes);
  left_ -= bytes.size();
}

std::vector<std::string> ShardWriter::file_names() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards_) names.push_back(shard.name);
  if (shards_.size() > 1 && options_.write_index) {
    names.push_back(options_.base_name + ".safetensors.index.json");
  }
  return names;
}

std::uint64_t ShardWriter::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards_) {
    bytes += header_of(shard.tensors, options_.metadata).size() + shard.bytes;
  }
  return bytes;
}

void ShardWriter::commit() {
  BL_CHECK(left_ == 0);
  while (writers_.size() < shards_.size()) {
    open_shard();
    BL_CHECK(left_ == 0);
  }
  for (const auto& writer : writers_) writer->commit();
  if (shards_.size() == 1 || !options_.write_index) return;
  OrderedJson index;
  std::uint64_t total = 0;
  std::map<std::string, std::string> map;
  for (const Shard& shard : shards_) {
    total += shard.bytes;
    for (const TensorPlan& tensor : shard.tensors) map[tensor.name] = shard.name;
  }
  index["metadata"]["total_size"] = total;
  index["weight_map"] = map;
  write_file_atomically(folder_ / (options_.base_name + ".safetensors.index.json"),
                        json_text(index, 2) + "\n");
}

}  // namespace bl
