#include "format/gptq.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "format/bit_codec.h"
#include "format/tensor_check.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// The tensors of one linear, with what their shapes say (docs/formats/gptq.md §3).
struct TensorSet {
  NamedArray qweight;
  NamedArray qzeros;
  NamedArray scales;
  std::optional<NamedArray> g_idx;
  int bits = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t groups = 0;
};

TensorSet read_tensors(const TensorSource& source, const std::string& key) {
  TensorSet set{NamedArray(source, key + ".qweight", {DType::kI32}, 2),
                NamedArray(source, key + ".qzeros", {DType::kI32}, 2),
                NamedArray(source, key + ".scales", {DType::kF16, DType::kBF16, DType::kF32}, 2),
                std::nullopt};
  if (source.find(key + ".g_idx") != nullptr) {
    set.g_idx.emplace(source, key + ".g_idx",
                      std::initializer_list<DType>{DType::kI32, DType::kI64}, 1);
  }
  set.out = set.qweight.size(1);
  set.groups = set.scales.size(0);
  if (set.out < 1 || set.qweight.size(0) < 1) {
    set.qweight.reject("its shape {} has no elements", set.qweight.shape());
  }
  if (set.scales.size(1) != set.out) {
    if (set.scales.size(1) / 8 == set.out && set.scales.size(1) % 8 == 0) {
      set.qweight.refuse(
          "its shape {} together with scales of shape {} is the layout of AWQ, which is not "
          "supported",
          set.qweight.shape(), set.scales.shape());
    }
    set.scales.reject("it has {} columns; it must have {}, as qweight does", set.scales.size(1),
                      set.out);
  }
  if (set.groups < 1 || set.qzeros.size(0) != set.groups) {
    set.qzeros.reject(
        "it has {} rows, but scales has {}; there must be the same number in both, at least 1",
        set.qzeros.size(0), set.groups);
  }
  return set;
}

// Derives the bit width and the number of channels from the shapes, as docs/formats/gptq.md §3
// says.
void derive_layout(TensorSet& set, const GptqConfig* config) {
  const std::int64_t words = set.qzeros.size(1);
  std::int64_t bits = 0;
  if (words < 1 || words > set.out || 32 * words % set.out != 0) {
    set.qzeros.reject("it has {} words per row for {} columns; there must be columns · bits / 32",
                      words, set.out);
  }
  bits = 32 * words / set.out;
  if (bits >= 5 && bits <= 7) {
    set.qzeros.refuse("{}-bit codes (planar packing) are not supported; 2, 3, 4 and 8 bits are",
                      bits);
  }
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    set.qzeros.reject("its shape for {} columns means {} bits per code; it must be 2, 3, 4 or 8",
                      set.out, bits);
  }
  set.bits = static_cast<int>(bits);
  if (config != nullptr && config->bits && !config->per_module && *config->bits != set.bits) {
    set.qzeros.reject("its shape means {} bits per code, but {} says {}", set.bits, config->file,
                      *config->bits);
  }
  const std::int64_t rows = set.qweight.size(0);
  if (rows > std::numeric_limits<std::int32_t>::max() / 32 || rows * 32 % bits != 0) {
    set.qweight.reject("its {} word rows are not a whole number of {}-bit channels", rows, bits);
  }
  set.in = rows * 32 / bits;
  if (set.groups > set.in) {
    set.scales.reject("it has {} groups for only {} channels", set.groups, set.in);
  }
}

std::int64_t groups_of(std::int64_t channels, std::int64_t size) {
  return (channels + size - 1) / size;
}

// The configured group_size must give the number of groups that the file holds. It is not checked
// for models whose modules have sizes of their own (`dynamic`).
void check_group_size(const TensorSet& set, const GptqConfig* config) {
  if (config == nullptr || !config->group_size || config->per_module) return;
  const std::int64_t size = *config->group_size == -1 ? set.in : *config->group_size;
  if (groups_of(set.in, size) != set.groups) {
    set.scales.reject(
        "it has {} groups, but {} says group_size {}, which makes {} groups of {} channels",
        set.groups, config->file, *config->group_size, groups_of(set.in, size), set.in);
  }
}

// The number of channels per group where no g_idx gives it: the configured one if it fits, else a
// power of two, else an equal share.
std::int64_t sequential_group_size(const TensorSet& set, const GptqConfig* config) {
  if (config != nullptr && config->group_size && *config->group_size != -1 &&
      groups_of(set.in, *config->group_size) == set.groups) {
    return *config->group_size;
  }
  std::int64_t size = 1;
  while (size * set.groups < set.in) size *= 2;
  if (groups_of(set.in, size) == set.groups) return size;
  if (set.in % set.groups != 0) {
    set.scales.reject("its {} groups do not divide {} channels evenly", set.groups, set.in);
  }
  return set.in / set.groups;
}

template <class T>
std::vector<std::int32_t> read_indices(const NamedArray& array, std::int64_t groups) {
  const auto values = array.span<T>();
  std::vector<std::int32_t> indices(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || static_cast<std::int64_t>(values[i]) >= groups) {
      array.reject("entry {} is {}, which is not a group in the range 0 to {}", i, values[i],
                   groups - 1);
    }
    indices[i] = static_cast<std::int32_t>(values[i]);
  }
  return indices;
}

// Checks that all groups have the same size, except that the last may be smaller.
void check_members(const TensorSet& set, const std::vector<std::int32_t>& group_of) {
  std::vector<std::int64_t> members(static_cast<std::size_t>(set.groups), 0);
  for (const std::int32_t g : group_of) ++members[static_cast<std::size_t>(g)];
  const std::int64_t size = members[0];
  for (std::size_t g = 0; g < members.size(); ++g) {
    const bool last = g + 1 == members.size();
    if (members[g] == size || (last && members[g] > 0 && members[g] < size)) continue;
    set.g_idx->reject("group {} has {} channels, but group 0 has {}; groups must be equally large",
                      g, members[g], size);
  }
}

// The group of each channel (docs/formats/gptq.md §7).
std::vector<std::int32_t> read_group_of(const TensorSet& set, const GptqConfig* config) {
  check_group_size(set, config);
  std::vector<std::int32_t> group_of;
  if (set.g_idx) {
    if (set.g_idx->size(0) != set.in) {
      set.g_idx->reject("it holds {} entries; there must be {}, one for each channel",
                        set.g_idx->size(0), set.in);
    }
    group_of = set.g_idx->dtype() == DType::kI32
                   ? read_indices<std::int32_t>(*set.g_idx, set.groups)
                   : read_indices<std::int64_t>(*set.g_idx, set.groups);
  } else if (config != nullptr && config->act_order && set.groups > 1) {
    set.qweight.reject(
        "there is no g_idx beside it, but {} says desc_act, which cannot be undone without one",
        config->file);
  }
  const bool all_zero =
      std::all_of(group_of.begin(), group_of.end(), [](std::int32_t g) { return g == 0; });
  if (!all_zero) {
    check_members(set, group_of);
    return group_of;
  }
  const std::int64_t size = sequential_group_size(set, config);
  group_of.resize(static_cast<std::size_t>(set.in));
  for (std::size_t i = 0; i < group_of.size(); ++i) {
    group_of[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / size);
  }
  return group_of;
}

// Whether every field of qzeros is `field`. Symmetric files hold 2^(bits−1) − 1 (v1) or 2^(bits−1)
// (v2) in every field.
bool all_fields_equal(const TensorSet& set, std::uint32_t field) {
  const auto words = set.qzeros.span<std::uint32_t>();
  // 32 fields take `bits` words. A row is a whole number of such runs; if it is not (the columns
  // are no multiple of 32), the width divides 32 and all words are alike.
  std::array<std::uint32_t, 8> run{};
  for (int i = 0; i < kCodesPerRun; ++i) write_code(run.data(), 1, i, set.bits, field);
  const std::size_t columns = static_cast<std::size_t>(set.qzeros.size(1));
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != run[i % columns % static_cast<std::size_t>(set.bits)]) return false;
  }
  return true;
}

// Whether zero points are meant as they are stored (v2). The words of a symmetric file show it, and
// are trusted over a wrong tag (docs/formats/gptq.md §5.4).
bool zeros_are_v2(const TensorSet& set, const GptqConfig* config) {
  const bool tagged = config != nullptr && config->v2;
  if (config == nullptr || config->symmetric == false) return tagged;
  const std::uint32_t center = 1u << (set.bits - 1);
  if (!all_fields_equal(set, tagged ? center - 1 : center)) return tagged;
  if (!config->warned->exchange(true)) {
    log_warning(
        "{}: the tag says {}, but the zero points of {} are those of {}; they are read as such",
        config->file, tagged ? "gptq_v2" : "gptq", set.qzeros.name(), tagged ? "gptq" : "gptq_v2");
  }
  return !tagged;
}

// Reads the fields of one row of qzeros and adds `offset` to each.
void read_fields(const std::vector<std::uint32_t>& row, int bits, std::uint32_t offset,
                 std::span<std::uint16_t> fields) {
  const std::size_t runs = fields.size() / kCodesPerRun;
  const bool known = visit_code_width(bits, [&]<int Bits>() {
    for (std::size_t run = 0; run < runs; ++run) {
      std::uint16_t* first = fields.data() + run * kCodesPerRun;
      BitCodec<Bits>::read_run(row.data() + run * Bits, 1, first);
      for (int i = 0; i < kCodesPerRun; ++i) {
        first[i] = static_cast<std::uint16_t>(first[i] + offset);
      }
    }
  });
  BL_CHECK(known);
  for (std::size_t c = runs * kCodesPerRun; c < fields.size(); ++c) {
    fields[c] = static_cast<std::uint16_t>(
        read_code(row.data(), 1, static_cast<std::int64_t>(c), bits) + offset);
  }
}

// The zero points z of W = (q − z)·s, [groups, out] (docs/formats/gptq.md §5).
std::vector<std::uint16_t> read_zeros(const TensorSet& set, const GptqConfig* config) {
  const bool v2 = zeros_are_v2(set, config);
  const bool carries = !v2 && config != nullptr && config->carries && set.bits != 3;
  std::uint32_t ones = 0;  // a 1 in every field
  for (int i = 0; i < 32; i += set.bits) ones |= 1u << i;
  const auto words = set.qzeros.span<std::uint32_t>();
  const auto columns = static_cast<std::size_t>(set.qzeros.size(1));
  const auto out = static_cast<std::size_t>(set.out);
  std::vector<std::uint16_t> zeros(static_cast<std::size_t>(set.groups) * out);
  std::vector<std::uint32_t> row(columns);
  for (std::size_t g = 0; g < static_cast<std::size_t>(set.groups); ++g) {
    for (std::size_t w = 0; w < columns; ++w) {
      row[w] = words[g * columns + w] + (carries ? ones : 0);
    }
    read_fields(row, set.bits, v2 || carries ? 0 : 1, std::span(zeros).subspan(g * out, out));
  }
  return zeros;
}

std::uint16_t to_half_bits(Half value) { return value.bits; }
std::uint16_t to_half_bits(BFloat16 value) { return float_to_half(static_cast<float>(value)); }
std::uint16_t to_half_bits(float value) { return float_to_half(value); }

template <class T>
std::vector<std::uint16_t> read_scales(const NamedArray& array) {
  const auto values = array.span<T>();
  std::vector<std::uint16_t> scales(values.size());
  const auto columns = static_cast<std::size_t>(array.size(1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    scales[i] = to_half_bits(values[i]);
    if ((scales[i] & 0x7c00u) == 0x7c00u) {
      array.reject("the scale of group {}, column {} is not a finite binary16 number", i / columns,
                   i % columns);
    }
  }
  return scales;
}

}  // namespace

GptqMatrix load_gptq_matrix(const TensorSource& source, const std::string& key,
                            const GptqConfig* config) {
  TensorSet set = read_tensors(source, key);
  derive_layout(set, config);
  GptqMatrix matrix;
  matrix.name = key;
  matrix.bits = set.bits;
  matrix.in = set.in;
  matrix.out = set.out;
  matrix.groups = set.groups;
  matrix.group_of = read_group_of(set, config);
  matrix.zeros = read_zeros(set, config);
  matrix.scales = visit_float_dtype(set.scales.dtype(),
                                    [&]<class T>(Tag<T>) { return read_scales<T>(set.scales); });
  matrix.qweight = set.qweight.span<std::uint32_t>();
  matrix.seeded = set.qweight.array().seeded;
  matrix.owner = set.qweight.array().owner;
  return matrix;
}

}  // namespace bl
