#include "convert/output_quality.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "convert/output_distributions.h"
#include "convert/packed_tensors.h"
#include "convert/products.h"
#include "convert/substitute.h"

namespace bl {
namespace {

constexpr std::size_t kPiece = 128;  // positions whose logits are in memory at a time

// Positions of the rows, their states on both paths, and the tokens that follow them.
struct Sample {
  std::vector<std::vector<std::int32_t>> ids{{}};  // one sequence; the head does not look at order
  std::vector<std::int32_t> next;
  Tensor original, quantized;  // F32 [positions, hidden]
};

// A position of a chunk of one row.
struct Place {
  std::size_t chunk = 0;
  std::int64_t row = 0;
};

// As many positions of each row that is held out, at even distances; the last token has no
// successor.
std::vector<Place> sampled_places(const TwoPaths& paths) {
  std::vector<Place> places;
  const auto rows = static_cast<std::int64_t>(paths.held_out);
  const auto each = std::max<std::int64_t>(1, kComparedPositions / rows);
  for (std::size_t i = 0; i < paths.held_out && std::ssize(places) < kComparedPositions; ++i) {
    const std::int64_t usable = paths.chunks[i].tokens() - 1;
    const std::int64_t count = std::min(each, usable);
    for (std::int64_t k = 0; k < count; ++k) places.push_back({i, (k + 1) * usable / count - 1});
  }
  return places;
}

Sample sample_of(const TwoPaths& paths, std::span<const Place> places) {
  Sample sample;
  const std::int64_t hidden = paths.original.front().view().columns();
  sample.original = make_host_tensor(DType::kF32, {std::ssize(places), hidden});
  sample.quantized = make_host_tensor(DType::kF32, {std::ssize(places), hidden});
  for (std::size_t k = 0; k < places.size(); ++k) {
    const Place& place = places[k];
    const auto& ids = paths.chunks[place.chunk].whole.batch.ids;
    sample.ids[0].push_back(ids[static_cast<std::size_t>(place.row)]);
    sample.next.push_back(ids[static_cast<std::size_t>(place.row + 1)]);
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      std::copy_n(from.view().row<const float>(place.row), hidden,
                  to.view().row<float>(static_cast<std::int64_t>(k)));
    };
    copy(paths.original[place.chunk], sample.original);
    copy(paths.quantized[place.chunk], sample.quantized);
  }
  return sample;
}

// The figures of each position.
struct Figures {
  std::vector<double> kl;
  std::vector<double> original, quantized;  // log-probabilities of the next token
};

// Runs the head on both paths and adds what their logits say.
void compare_sample(ModelPart& ends, Products& products, const CallPlan& quantized_head,
                    const Sample& sample, Figures& figures) {
  const Chunk chunk(sample.ids);
  const auto next_of = [&](std::int64_t r, const float* logits, const LogSum& sum) {
    return sum.log_probability(logits[sample.next[static_cast<std::size_t>(r)]]);
  };
  std::optional<OutputDistributions> base;
  ends.run_head(chunk, sample.original.view(), {},
                [&](std::int64_t first, const TensorView& logits) {
                  BL_CHECK(first == 0);
                  base.emplace(products, logits);
                  for (std::int64_t r = 0; r < logits.rows(); ++r) {
                    const float* row = logits.row<const float>(r);
                    figures.original.push_back(next_of(r, row, log_sum_of(row, logits.columns())));
                  }
                });
  const std::size_t before = figures.kl.size();
  figures.kl.resize(figures.original.size());
  figures.quantized.resize(figures.original.size());
  const auto compare_row = [&](std::int64_t r, const TensorView& logits) {
    const float* row = logits.row<const float>(r);
    const LogSum sum = log_sum_of(row, logits.columns());
    const std::size_t at = before + static_cast<std::size_t>(r);
    figures.quantized[at] = next_of(r, row, sum);
    figures.kl[at] = base->divergence(r, row, sum);
  };
  ends.run_head(chunk, sample.quantized.view(), quantized_head,
                [&](std::int64_t, const TensorView& logits) {
                  BL_CHECK(logits.rows() == base->rows());
                  products.parallel(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t r = begin; r < end; ++r) compare_row(r, logits);
                  });
                });
}

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

OutputQuality summary_of(const Figures& figures) {
  OutputQuality quality;
  quality.positions = std::ssize(figures.kl);
  if (quality.positions == 0) return quality;
  quality.original_perplexity = std::exp(-mean_of(figures.original));
  quality.quantized_perplexity = std::exp(-mean_of(figures.quantized));
  quality.kl = mean_of(figures.kl);
  double square = 0.0;
  for (const double kl : figures.kl) square += (kl - quality.kl) * (kl - quality.kl);
  const auto n = static_cast<double>(quality.positions);
  if (n > 1) quality.kl_error = std::sqrt(square / (n - 1) / n);
  return quality;
}

}  // namespace

Json to_json(const OutputQuality& quality) {
  return {{"block_errors", quality.block_errors},
          {"positions", quality.positions},
          {"original_perplexity", quality.original_perplexity},
          {"quantized_perplexity", quality.quantized_perplexity},
          {"kl", quality.kl},
          {"kl_error", quality.kl_error}};
}

OutputQuality quality_from_json(const Json& json, const std::string& what) {
  // A figure that is no finite number is written as null.
  const auto number = [&](const char* key) {
    const Json& value = json.at(key);
    return value.is_null() ? std::nan("") : value.get<double>();
  };
  try {
    OutputQuality quality;
    for (const Json& error : json.at("block_errors")) {
      quality.block_errors.push_back(error.is_null() ? std::nan("") : error.get<double>());
    }
    quality.positions = json.at("positions").get<std::int64_t>();
    quality.original_perplexity = number("original_perplexity");
    quality.quantized_perplexity = number("quantized_perplexity");
    quality.kl = number("kl");
    quality.kl_error = number("kl_error");
    return quality;
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{}: the figures of the whole model are damaged: {}", what,
         error.what());
  }
}

double stream_error(const TwoPaths& paths) {
  double difference = 0.0, power = 0.0;
  for (std::size_t i = 0; i < paths.held_out; ++i) {
    const float* original = paths.original[i].view().as<const float>();
    const float* quantized = paths.quantized[i].view().as<const float>();
    const std::int64_t n = paths.original[i].view().shape.elements();
    for (std::int64_t k = 0; k < n; ++k) {
      const double by = static_cast<double>(quantized[k]) - original[k];
      difference += by * by;
      power += static_cast<double>(original[k]) * original[k];
    }
  }
  return power > 0.0 ? difference / power : 0.0;
}

OutputQuality compare_outputs(ModelPart& ends, Backend& backend, const TwoPaths& paths,
                              const QuantizedLinear* head) {
  Substitutes substitutes(backend);
  if (head != nullptr)
    substitutes.add(ends.linears().front(), weight_matrix(head->key, head->matrix));
  CallPlan quantized_head;
  quantized_head.substitutes = substitutes.map();
  Products products(backend);
  Figures figures;
  const std::vector<Place> places = sampled_places(paths);
  for (std::size_t first = 0; first < places.size(); first += kPiece) {
    const auto piece = std::span(places).subspan(first, std::min(kPiece, places.size() - first));
    compare_sample(ends, products, quantized_head, sample_of(paths, piece), figures);
  }
  return summary_of(figures);
}

}  // namespace bl
