#include "convert/output_quality.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/whole_number.h"
#include "convert/output_distributions.h"
#include "convert/packed_tensors.h"
#include "convert/products.h"
#include "convert/substitute.h"

namespace bl {
namespace {

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

// Returns up to kComparedPositions positions, an equal number from every row that is held out, at
// even distances. The last token of a row has no successor and is left out.
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

Sample sample_of(Products& products, const TwoPaths& paths, std::span<const Place> places) {
  Sample sample;
  std::vector<TensorView> original, quantized;
  for (const Place& place : places) {
    const auto& ids = paths.chunks[place.chunk].whole.batch.ids;
    sample.ids[0].push_back(ids[static_cast<std::size_t>(place.row)]);
    sample.next.push_back(ids[static_cast<std::size_t>(place.row + 1)]);
    original.push_back(slice_rows(paths.original[place.chunk].view(), place.row, 1));
    quantized.push_back(slice_rows(paths.quantized[place.chunk].view(), place.row, 1));
  }
  sample.original = products.gathered(original);
  sample.quantized = products.gathered(quantized);
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
  const auto add_next = [&](const TensorView& logits, std::vector<double>& figures_of_path) {
    std::vector<double> log_p(sample.next.size());
    products.ops().log_probabilities(logits, sample.next, log_p);
    figures_of_path.insert(figures_of_path.end(), log_p.begin(), log_p.end());
  };
  std::optional<OutputDistributions> base;
  ends.run_head(chunk, sample.original.view(), {},
                [&](std::int64_t first, const TensorView& logits) {
                  BL_CHECK(first == 0);
                  base.emplace(products, logits);
                  add_next(logits, figures.original);
                });
  ends.run_head(chunk, sample.quantized.view(), quantized_head,
                [&](std::int64_t, const TensorView& logits) {
                  BL_CHECK(logits.rows() == base->rows());
                  const std::vector<double> kl = base->divergences(logits);
                  figures.kl.insert(figures.kl.end(), kl.begin(), kl.end());
                  add_next(logits, figures.quantized);
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
    quality.positions = whole_number(json.at("positions"));
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

double stream_error(Backend& backend, const TwoPaths& paths) {
  Products products(backend);
  double difference = 0.0, power = 0.0;
  for (std::size_t i = 0; i < paths.held_out; ++i) {
    const Tensor original = products.fetch(paths.original[i]);
    const Tensor change = products.copy(paths.quantized[i].view());
    products.ops().add_scaled(change.view(), original.view(), -1.0f);
    difference += products.ops().dot(change.view(), change.view(), {});
    power += products.ops().dot(original.view(), original.view(), {});
  }
  return power > 0.0 ? difference / power : 0.0;
}

OutputQuality compare_outputs(ModelPart& ends, Backend& backend, const TwoPaths& paths,
                              const QuantizedLinear* head) {
  Substitutes substitutes(backend);
  if (head != nullptr)
    substitutes.add(ends.linears().front(), weight_matrix(head->key, head->packed));
  CallPlan quantized_head;
  quantized_head.substitutes = substitutes.map();
  Products products(backend);
  Figures figures;
  const std::vector<Place> places = sampled_places(paths);
  for (std::size_t first = 0; first < places.size(); first += kLogitRows) {
    const auto piece =
        std::span(places).subspan(first, std::min<std::size_t>(kLogitRows, places.size() - first));
    compare_sample(ends, products, quantized_head, sample_of(products, paths, piece), figures);
  }
  return summary_of(figures);
}

}  // namespace bl
