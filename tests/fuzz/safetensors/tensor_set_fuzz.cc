// Any shapes, dtypes and values of the tensors of one linear, past the container: the checks of
// EXL2, GPTQ and dense matrices by themselves.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>

#include "check_matrices.h"

namespace {

using namespace bl;

// Takes the input apart; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  void fill(std::byte* to, std::size_t count) {
    const std::size_t have = std::min(count, size_ - at_);
    if (have > 0) std::memcpy(to, data_ + at_, have);
    at_ += have;
    std::fill(to + have, to + count, std::byte{0});
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

class MemorySource : public TensorSource {
 public:
  void add(const std::string& name, DType dtype, const Shape& shape, Input& input) {
    auto bytes = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(shape.elements()) * size_of(dtype));
    if (!bytes->empty()) input.fill(bytes->data(), bytes->size());
    infos_[name] = {dtype, shape, "input"};
    arrays_[name] = {view_of(bytes->data(), dtype, shape), bytes};
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = infos_.find(std::string(name));
    return found == infos_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> names() const override { return {}; }
  HostArray read(std::string_view name) const override { return arrays_.at(std::string(name)); }

 private:
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, HostArray> arrays_;
};

// 0 … 7 as they are, else multiples of 8.
std::int64_t size_from(std::uint8_t byte) { return byte < 8 ? byte : 8 * (byte % 33); }

GptqConfig config_from(Input& input) {
  GptqConfig config;
  config.file = "config";
  const std::uint8_t flags = input.byte();
  config.v2 = flags & 1;
  config.carries = flags & 2;
  config.act_order = flags & 4;
  config.per_module = flags & 8;
  if (flags & 16) config.symmetric = (flags & 32) != 0;
  if (flags & 64) config.bits = input.byte() % 9;
  if (flags & 128) config.group_size = std::max(1, static_cast<int>(input.byte()));
  config.warned->store(true);
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kNames[] = {"m.q_weight",  "m.q_groups", "m.q_scale", "m.q_scale_max",
                                    "m.q_invperm", "m.qweight",  "m.qzeros",  "m.scales",
                                    "m.g_idx",     "m.weight",   "m.bias"};
  constexpr DType kDTypes[] = {DType::kI32,  DType::kI16, DType::kF16, DType::kF32,
                               DType::kBF16, DType::kI64, DType::kU8,  DType::kI8};
  constexpr std::int64_t kMaxElements = 1 << 14;  // enough for every rule, and fast
  Input input(data, size);
  const GptqConfig config = config_from(input);
  MemorySource source;
  for (int count = input.byte() % 8; count > 0; --count) {
    const char* name = kNames[input.byte() % std::size(kNames)];
    const DType dtype = kDTypes[input.byte() % std::size(kDTypes)];
    Shape shape;
    for (int rank = input.byte() % 4; rank > 0; --rank) shape.append(size_from(input.byte()));
    if (shape.elements() <= kMaxElements) source.add(name, dtype, shape, input);
  }
  const std::uint8_t hints = input.byte();
  fuzz::check_matrix(source, "m",
                     {.in = hints & 1 ? 64 : 0,
                      .out = hints & 2 ? 32 : 0,
                      .more_out = (hints & 4) != 0,
                      .transposed = (hints & 8) != 0,
                      .bias = static_cast<BiasRule>(hints / 16 % 3),
                      .gptq = hints & 128 ? &config : nullptr});
  return 0;
}
