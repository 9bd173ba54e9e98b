#include "random_source.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

std::size_t bytes_of(const TensorInfo& info) {
  return static_cast<std::size_t>(info.shape.elements()) * size_of(info.dtype);
}

std::uint64_t value_seed(std::string_view name) { return std::hash<std::string_view>()(name); }

// Step i of 255 from `least` to `most`.
float even_value(float least, float most, std::uint64_t i) {
  return least + static_cast<float>(i) / 255.0f * (most - least);
}

// Values of 16 bits, of which a random byte chooses one.
SeededValues even_table(DType dtype, float least, float most) {
  SeededValues table;
  table.halves = true;
  for (std::uint64_t i = 0; i < 256; ++i) {
    const float value = even_value(least, most, i);
    table.values[i] = dtype == DType::kBF16 ? BFloat16(value).bits : Half(value).bits;
  }
  return table;
}

void fill_seeded(const TensorView& view, std::uint64_t seed, SeededValues values) {
  values.seed = seed;
  make_values(values, view.as<std::byte>(),
              static_cast<std::size_t>(view.shape.elements()) * size_of(view.dtype));
}

}  // namespace

std::uint64_t next_random(std::uint64_t& state) {
  const std::uint64_t word = seeded_word(state, 0);
  state += kSeededStep;
  return word;
}

float next_share(std::uint64_t& state) {
  return static_cast<float>(next_random(state) & 255) / 255.0f;
}

void fill_bits(const TensorView& view, std::uint64_t seed) { fill_seeded(view, seed, {}); }

void fill_even(const TensorView& view, std::uint64_t seed, float least, float most) {
  if (size_of(view.dtype) == 2) {
    return fill_seeded(view, seed, even_table(view.dtype, least, most));
  }
  auto* out = view.as<float>();
  const std::int64_t count = view.shape.elements();
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = even_value(least, most, next_random(seed) & 255);
}

void fill_signs(const TensorView& view, std::uint64_t seed, float size, float offset) {
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    auto* out = view.as<T>();
    const std::int64_t count = view.shape.elements();
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = T((next_random(seed) & 1 ? size : -size) - offset);
  });
}

void fill_permutation(const TensorView& view, std::uint64_t seed) {
  auto* out = view.as<std::int32_t>();
  const std::int64_t count = view.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(i);
  for (std::int64_t i = count - 1; i > 0; --i) {
    const auto other =
        static_cast<std::int64_t>(next_random(seed) % static_cast<std::uint64_t>(i + 1));
    std::swap(out[i], out[other]);
  }
}

void RandomSource::add(const std::string& name, Entry entry) {
  entry.info.file = "random model";
  bytes_ += bytes_of(entry.info);
  const bool is_new = entries_.emplace(name, std::move(entry)).second;
  BL_CHECK(is_new);
}

void RandomSource::add(const std::string& name, DType dtype, const Shape& shape, Fill fill) {
  add(name, {{dtype, shape, {}}, std::move(fill), nullptr});
}

void RandomSource::add_seeded(const std::string& name, DType dtype, const Shape& shape,
                              const SeededValues& values) {
  const auto own = std::make_shared<SeededValues>(values);
  own->seed = value_seed(name);
  add(name, {{dtype, shape, {}}, {}, own});
}

void RandomSource::add_even(const std::string& name, DType dtype, const Shape& shape, float least,
                            float most) {
  if (size_of(dtype) == 2) return add_seeded(name, dtype, shape, even_table(dtype, least, most));
  add(name, dtype, shape,
      [=](const TensorView& view, std::uint64_t seed) { fill_even(view, seed, least, most); });
}

void RandomSource::add_constant(const std::string& name, DType dtype, const Shape& shape,
                                float value) {
  add(name, dtype, shape,
      [=](const TensorView& view, std::uint64_t seed) { fill_even(view, seed, value, value); });
}

const TensorInfo* RandomSource::find(std::string_view name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second.info;
}

std::vector<std::string> RandomSource::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

HostArray RandomSource::read(std::string_view name) const {
  const Entry& entry = entry_of(name);
  const TensorInfo& info = entry.info;
  if (hollow_ && (entry.values || bytes_of(info) > kBulk)) return untouched(info);
  const auto tensor = std::make_shared<Tensor>(make_host_tensor(info.dtype, info.shape));
  if (entry.values) {
    make_values(*entry.values, tensor->view().as<std::byte>(), bytes_of(info));
  } else {
    entry.fill(tensor->view(), value_seed(name));
  }
  return {tensor->view(), tensor};
}

HostArray RandomSource::read_seeded(std::string_view name) const {
  const Entry& entry = entry_of(name);
  if (!entry.values) return read(name);
  HostArray array = untouched(entry.info);
  array.seeded = entry.values;
  return array;
}

const RandomSource::Entry& RandomSource::entry_of(std::string_view name) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) fail(ErrorCode::kNotFound, "random model: no tensor {}", name);
  return at->second;
}

HostArray RandomSource::untouched(const TensorInfo& info) const {
  const std::size_t bytes = bytes_of(info);
  if (!shared_ || static_cast<std::size_t>(shared_->view().rows()) < bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    shared_ = std::make_shared<Tensor>(make_host_tensor(DType::kU8, {size}));
  }
  return {view_of(shared_->view().as<std::byte>(), info.dtype, info.shape), shared_};
}

}  // namespace bl
