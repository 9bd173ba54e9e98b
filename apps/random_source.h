#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "tensor/tensor.h"

namespace bl {

// Tensors that are made when they are read, each from a seed of its own, which its name gives.
class RandomSource : public TensorSource {
 public:
  using Fill = std::function<void(const TensorView&, std::uint64_t seed)>;

  // `hollow`: seeded tensors and all above kBulk bytes share memory that nobody fills, for a plan
  // that reads none.
  explicit RandomSource(bool hollow) : hollow_(hollow) {}

  void add(const std::string& name, DType dtype, const Shape& shape, Fill fill);
  // A tensor whose bytes may be left to whoever reads it (read_seeded()), as bulk weights are.
  void add_seeded(const std::string& name, DType dtype, const Shape& shape,
                  const SeededValues& values);
  // Floats spread evenly from `least` to `most`; seeded where they have 16 bits.
  void add_even(const std::string& name, DType dtype, const Shape& shape, float least, float most);
  void add_constant(const std::string& name, DType dtype, const Shape& shape, float value);

  // Bytes of all tensors.
  std::size_t bytes() const { return bytes_; }

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  HostArray read_seeded(std::string_view name) const override;

 private:
  static constexpr std::size_t kBulk = std::size_t{1} << 20;
  struct Entry {
    TensorInfo info;
    Fill fill;
    std::shared_ptr<const SeededValues> values;  // in place of `fill`
  };
  void add(const std::string& name, Entry entry);
  const Entry& entry_of(std::string_view name) const;
  HostArray untouched(const TensorInfo& info) const;

  std::map<std::string, Entry, std::less<>> entries_;
  std::size_t bytes_ = 0;
  bool hollow_;
  mutable std::shared_ptr<Tensor> shared_;  // what untouched() gives out
};

// The next word of a stream whose state is its seed.
std::uint64_t next_random(std::uint64_t& state);
// A number from 0 to 1, in 255 steps.
float next_share(std::uint64_t& state);

// Fillers of tensors.
void fill_bits(const TensorView& view, std::uint64_t seed);
void fill_even(const TensorView& view, std::uint64_t seed, float least, float most);
// Each `size` or −`size`, less `offset`.
void fill_signs(const TensorView& view, std::uint64_t seed, float size, float offset);
void fill_permutation(const TensorView& view, std::uint64_t seed);

}  // namespace bl
