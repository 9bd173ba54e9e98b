#include "random_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"
#include "format/bit_codec.h"
#include "tensor/float16.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr int kGptqBits = 4;
constexpr std::int64_t kLeastIn = kCodesPerRun;  // channels that quantized rows come in

const std::map<std::string, DType>& plain_formats() {
  static const std::map<std::string, DType> kFormats = {
      {"bf16", DType::kBF16}, {"fp16", DType::kF16}, {"fp32", DType::kF32}};
  return kFormats;
}

// A stretch of input channels whose codes have one width.
struct Band {
  int bits = 0;
  std::int64_t rows = 0;
  std::int64_t group = 0;
};

std::vector<Band> bands_of(const Json& mix, std::int64_t in) {
  std::vector<Band> bands;
  std::int64_t left = in;
  for (std::size_t i = 0; i < mix.size(); ++i) {
    const std::int64_t group = mix[i].at("group");
    const auto share =
        static_cast<std::int64_t>(static_cast<double>(in) * mix[i].at("share").get<double>());
    // Whole groups, but of few channels as many as come together.
    const std::int64_t unit = in < 4 * group ? kLeastIn : group;
    const std::int64_t rows = i + 1 == mix.size() ? left : share / unit * unit;
    left -= rows;
    if (rows > 0) bands.push_back({mix[i].at("bits"), rows, group});
  }
  return bands;
}

// Codes of the two widths around `bits`, so that they are so wide on average.
Json mix_around(double bits) {
  constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
  constexpr int kGroup = 128;
  const auto* above = std::upper_bound(std::begin(kWidths), std::end(kWidths), bits);
  const int low = *std::prev(above);
  Json mix = Json::array();
  if (above != std::end(kWidths)) {
    const double share = (bits - low) / (*above - low);
    if (share > 0) mix.push_back({{"bits", *above}, {"share", share}, {"group", kGroup}});
  }
  mix.push_back({{"bits", low}, {"share", 1.0}, {"group", kGroup}});
  return mix;
}

double bits_of(const std::string& text) {
  double bits = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, bits);
  return error == std::errc() && stop == end ? bits : 0;
}

// The widest codes of a mix take more of it.
Json favored(Json mix, double factor) {
  Json& share = mix.at(0).at("share");
  share = std::min(1.0, share.get<double>() * factor);
  return mix;
}

// Standard deviation of codes around their center, the least of them left out (center_codes()).
float deviation_of_codes(int bits) {
  const auto center = static_cast<float>(1 << (bits - 1));
  return std::sqrt((center - 1) * (2 * center - 1) / 6);
}

// Means of the groups' largest scales. Usually 0.02 whatever the width, as other engines' random
// models have it; of compared models such that weights have the standard deviation `size`.
std::vector<float> mean_scales(const std::vector<std::int16_t>& groups, float size) {
  constexpr float kScale = 0.5f;  // a scale beside the largest, root of the mean square
  std::vector<float> means(groups.size() / 2, 0.02f);
  for (std::size_t i = 0; size > 0 && i < means.size(); ++i) {
    means[i] = size / (kScale * deviation_of_codes(groups[2 * i]));
  }
  return means;
}

// Half to one and a half times each mean: groups differ, as those of real files do, since a card's
// power, and so its speed, depends on the numbers it multiplies.
void fill_scales(const TensorView& view, const std::vector<float>& means, std::uint64_t seed) {
  auto* out = view.as<std::uint16_t>();
  for (const float mean : means) *out++ = float_to_half(mean * (0.5f + next_share(seed)));
}

// Random codes mean half a step less than nothing on average. The least code becomes the center.
template <int kBits>
void center_codes(std::uint32_t* words, std::int64_t rows, std::int64_t out) {
  for (std::int64_t row = 0; row < rows; row += kBits) {
    for (std::int64_t column = 0; column < out; ++column) {
      std::uint32_t* run = words + row * out + column;
      std::uint8_t codes[kCodesPerRun];
      BitCodec<kBits>::read_run(run, out, codes);
      for (std::uint8_t& code : codes) code = code == 0 ? 1 << (kBits - 1) : code;
      BitCodec<kBits>::write_run(codes, run, out);
    }
  }
}

// `groups`: pairs of width and first word row, as q_groups has them.
void fill_centered(const TensorView& view, std::uint64_t seed,
                   const std::vector<std::int16_t>& groups) {
  fill_bits(view, seed);
  const std::int64_t out = view.shape[1];
  for (std::size_t i = 0; i < groups.size(); i += 2) {
    const std::int64_t begin = groups[i + 1];
    const std::int64_t end = i + 2 < groups.size() ? groups[i + 3] : view.shape[0];
    visit_code_width(groups[i], [&]<int kBits>() {
      center_codes<kBits>(view.as<std::uint32_t>() + begin * out, end - begin, out);
    });
  }
}

void add_codes(RandomSource& source, const std::string& name, const Shape& shape,
               const std::vector<std::int16_t>& groups, bool centered) {
  if (!centered) return source.add_seeded(name, DType::kI32, shape, {});
  source.add(name, DType::kI32, shape, [groups](const TensorView& view, std::uint64_t seed) {
    fill_centered(view, seed, groups);
  });
}

}  // namespace

RandomMatrices::RandomMatrices(RandomSource& source, const RandomModelRequest& request,
                               const Json& shapes)
    : source_(source),
      format_(request.format),
      level_(request.level),
      group_size_(request.group_size),
      head_mix_(shapes.at("head")) {
  if (const auto plain = plain_formats().find(format_); plain != plain_formats().end()) {
    plain_dtype_ = plain->second;
  } else if (!quantized()) {
    const std::vector<std::string> known{"exl2", "gptq", "bf16", "fp16", "fp32"};
    fail_usage("--format: '{}' is not one of {}{}", format_, fmt::join(known, ", "),
               did_you_mean(format_, known));
  }
  const std::int64_t groups[] = {32, 64, 128};
  if (std::find(std::begin(groups), std::end(groups), group_size_) == std::end(groups)) {
    fail(ErrorCode::kInvalidArgument, "--group-size: {} is not one of 32, 64, 128", group_size_);
  }
  if (format_ != "exl2") return;
  const bool favors = request.mix.ends_with('+');
  const std::string base = request.mix.substr(0, request.mix.size() - (favors ? 1 : 0));
  bits_ = bits_of(base);
  const auto mix = shapes.at("mixes").find(base);
  if (mix == shapes.at("mixes").end() && !(bits_ >= 2 && bits_ <= 8)) {
    fail(ErrorCode::kInvalidArgument,
         "--bpw: '{}' is not a number from 2 to 8, which may have a '+' behind it", request.mix);
  }
  mix_ = mix != shapes.at("mixes").end() ? *mix : mix_around(bits_);
  favored_mix_ = favors ? favored(mix_, shapes.at("favoured").at("first_share")) : mix_;
}

Json RandomMatrices::quantization_config() const {
  if (format_ == "exl2") return {{"quant_method", "exl2"}, {"bits", bits_}};
  if (format_ != "gptq") return nullptr;
  return {{"quant_method", "gptq"},
          {"bits", kGptqBits},
          {"group_size", group_size_},
          {"desc_act", false},
          {"sym", true}};
}

float RandomMatrices::level_size(std::int64_t in) {
  return 1.0f / std::sqrt(static_cast<float>(in));
}

void RandomMatrices::add(const OutlinedLinear& linear) {
  if (format_ == "exl2" && linear.quantizable()) return add_exl2(linear);
  if (format_ == "gptq" && linear.quantizable() && linear.role != LinearRole::kHead) {
    return add_gptq(linear);
  }
  add_plain(linear);
}

void RandomMatrices::check_width(const OutlinedLinear& linear, std::int64_t out_multiple) const {
  const auto check = [&](const char* what, std::int64_t count, std::int64_t multiple) {
    if (count % multiple == 0) return;
    fail(ErrorCode::kInvalidArgument,
         "--format {}: {} has {} {}, and quantized matrices have a multiple of {}; --format fp16 "
         "takes any",
         format_, linear.key, count, what, multiple);
  };
  check("inputs", linear.in, kLeastIn);
  check("outputs", linear.out, out_multiple);
}

void RandomMatrices::add_plain(const OutlinedLinear& linear) {
  const float most = level_ ? std::sqrt(3.0f) * level_size(linear.in) : 0.02f;
  const Shape shape =
      linear.transposed ? Shape{linear.in, linear.out} : Shape{linear.out, linear.in};
  source_.add_even(linear.key + ".weight", plain_dtype_, shape, -most, most);
}

const Json& RandomMatrices::mix_of(const OutlinedLinear& linear) const {
  if (linear.role == LinearRole::kHead) return head_mix_;
  const bool favors = linear.role == LinearRole::kValue || linear.role == LinearRole::kUp;
  return favors ? favored_mix_ : mix_;
}

void RandomMatrices::add_exl2(const OutlinedLinear& linear) {
  check_width(linear, 1);
  const std::int64_t out = (linear.out + 31) / 32 * 32;
  std::vector<std::int16_t> groups;
  std::int64_t words = 0;
  for (const Band& band : bands_of(mix_of(linear), linear.in)) {
    for (std::int64_t row = 0; row < band.rows; row += band.group) {
      groups.push_back(static_cast<std::int16_t>(band.bits));
      groups.push_back(static_cast<std::int16_t>(words));
      words += std::min(band.group, band.rows - row) * band.bits / 32;
    }
  }
  const auto count = static_cast<std::int64_t>(groups.size()) / 2;
  const std::string& key = linear.key;
  add_codes(source_, key + ".q_weight", Shape{words, out}, groups, level_);
  source_.add(key + ".q_scale", DType::kI32, Shape{count, out / 8}, fill_bits);
  source_.add(key + ".q_scale_max", DType::kF16, Shape{count},
              [means = mean_scales(groups, level_ ? level_size(linear.in) : 0)](
                  const TensorView& view, std::uint64_t seed) { fill_scales(view, means, seed); });
  source_.add(key + ".q_groups", DType::kI16, Shape{2 * count},
              [groups](const TensorView& view, std::uint64_t) {
                std::copy(groups.begin(), groups.end(), view.as<std::int16_t>());
              });
  // Converters order the channels of an input once for all matrices that read it: those of one
  // module and width.
  const std::uint64_t order = std::hash<std::string>()(key.substr(0, key.rfind('.'))) +
                              static_cast<std::uint64_t>(linear.in);
  source_.add(key + ".q_invperm", DType::kI32, Shape{linear.in},
              [order](const TensorView& view, std::uint64_t) { fill_permutation(view, order); });
}

void RandomMatrices::add_gptq(const OutlinedLinear& linear) {
  constexpr std::int64_t kCodesPerWord = 32 / kGptqBits;
  check_width(linear, kCodesPerWord);
  const std::int64_t groups = (linear.in + group_size_ - 1) / group_size_;
  const std::string& key = linear.key;
  add_codes(source_, key + ".qweight", Shape{linear.in / kCodesPerWord, linear.out}, {kGptqBits, 0},
            level_);
  source_.add(key + ".qzeros", DType::kI32, Shape{groups, linear.out / kCodesPerWord},
              [](const TensorView& view, std::uint64_t) {
                std::fill_n(view.as<std::int32_t>(), view.shape.elements(), 0x77777777);
              });
  const float mean = level_ ? level_size(linear.in) / deviation_of_codes(kGptqBits) : 0.002f;
  source_.add(key + ".scales", DType::kF16, Shape{groups, linear.out},
              [mean](const TensorView& view, std::uint64_t seed) {
                fill_even(view, seed, 0.5f * mean, 1.5f * mean);
              });
}

}  // namespace bl
