#include "format/safetensors_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/quoted_name.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

// The shape with all dimensions from the fourth on multiplied into one.
Shape folded(const std::vector<std::int64_t>& sizes) {
  Shape shape;
  const std::size_t kept = std::min(sizes.size(), static_cast<std::size_t>(Shape::kMaxRank));
  for (std::size_t i = 0; i + 1 < kept; ++i) shape.append(sizes[i]);
  if (kept > 0) {
    std::int64_t last = 1;
    const bool empty = std::count(sizes.begin(), sizes.end(), 0) > 0;
    for (std::size_t i = kept - 1; i < sizes.size(); ++i) last = empty ? 0 : last * sizes[i];
    shape.append(sizes.size() > kept ? last : sizes[kept - 1]);
  }
  return shape;
}

}  // namespace

class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) : file(path) {}
  MappedFile file;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(std::make_shared<const Mapping>(path)) {}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const Mapping> mapping)
    : SafetensorsFile(mapping, mapping->file.bytes(), mapping->file.path().string()) {
  mapping_ = std::move(mapping);
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const void> owner,
                                 std::span<const std::byte> bytes, std::string what)
    : what_(std::move(what)),
      owner_(std::move(owner)),
      bytes_(bytes),
      header_(parse_safetensors_header(bytes_, what_)) {
  infos_.reserve(header_.entries.size());
  for (const SafetensorsEntry& entry : header_.entries) {
    infos_.push_back({entry.dtype.value_or(DType::kU8), folded(entry.shape), what_});
  }
}

const SafetensorsEntry* SafetensorsFile::entry(std::string_view name) const {
  const auto& entries = header_.entries;
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const SafetensorsEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  if (found == entries.end() || found->name != name) return nullptr;
  if (!found->dtype) {
    fail(ErrorCode::kUnsupported,
         "{}: tensor {} is stored as {}, which is not supported (F32, F16, BF16, I64, I32, I16, I8 "
         "and U8 are)",
         what_, quoted_name(name), found->dtype_name);
  }
  return &*found;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const SafetensorsEntry* found = entry(name);
  return found == nullptr ? nullptr : &infos_[static_cast<std::size_t>(found - entries().data())];
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(entries().size());
  for (const SafetensorsEntry& entry : entries()) {
    if (entry.dtype) names.push_back(entry.name);
  }
  return names;
}

std::vector<std::string> SafetensorsFile::refused_names() const {
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : entries()) {
    if (!entry.dtype) names.push_back(entry.name);
  }
  return names;
}

HostArray SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* found = entry(name);
  if (found == nullptr)
    fail(ErrorCode::kNotFound, "{}: there is no tensor {}", what_, quoted_name(name));
  const TensorInfo& info = infos_[static_cast<std::size_t>(found - entries().data())];
  const std::byte* data = bytes_.data() + found->begin;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(info.dtype) == 0) {
    return {view_of(const_cast<std::byte*>(data), info.dtype, info.shape), owner_};
  }
  auto copy = std::make_shared<const Buffer>(allocate_host(found->bytes()));
  std::memcpy(copy->data(), data, found->bytes());
  return {view_of(copy->data(), info.dtype, info.shape), copy};
}

void SafetensorsFile::done_with(std::string_view name) const {
  if (mapping_ == nullptr) return;
  if (const SafetensorsEntry* found = entry(name)) {
    mapping_->file.done_with(found->begin, found->bytes());
  }
}

}  // namespace bl
