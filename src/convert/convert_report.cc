#include "convert/convert_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/terminal.h"

namespace bl {
namespace {

constexpr double kDoubtfulPerplexity = 30.0;
constexpr double kFailedPerplexity = 1000.0;
constexpr double kKeptPerplexity = 2.0;  // times that of the original model

// The name of a linear without what says which block it is in: "mlp.down_proj".
std::string kind_of(const std::string& key) {
  std::size_t start = 0, at = 0;
  while (at < key.size()) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    const bool number = dot > at && std::all_of(key.begin() + static_cast<std::ptrdiff_t>(at),
                                                key.begin() + static_cast<std::ptrdiff_t>(dot),
                                                [](char c) { return c >= '0' && c <= '9'; });
    if (number && dot < key.size()) start = dot + 1;
    at = dot + 1;
  }
  return key.substr(start);
}

std::string linears_text(const ConvertReport& report) {
  std::string text =
      fmt::format("{:<44} {:>7} {:>12} {:>12}\n", "linear", "bits", "rel. error", "KL share");
  for (const LinearReport& linear : report.linears) {
    text += fmt::format("{:<44} {:>7.3f} {:>12.3e} {:>12.3e}\n", linear.key, linear.bits,
                        linear.relative_error, linear.predicted_kl);
  }
  return text;
}

std::string blocks_text(const ConvertReport& report) {
  std::string text = fmt::format("\n{:<44} {:>7} {:>12}\n", "block", "bits", "rel. error");
  for (const BlockReport& block : blocks_of(report)) {
    text +=
        fmt::format("{:<44} {:>7.3f} {:>12.3e}\n", block.name, block.bits, block.relative_error);
  }
  return text;
}

// What was fitted, and what the figures of the whole model are of.
std::string calibration_text(const ConvertReport& report) {
  const OutputQuality& quality = report.quality;
  std::string text = fmt::format("fitted to {} tokens; ", report.fitted_tokens);
  text += fmt::format("held out: {} rows, {} tokens", report.held_out_rows, report.held_out_tokens);
  if (quality.positions > 0) {
    text += fmt::format(
        ", at {} positions: perplexity {:.4f}, {:.4f} before; KL divergence {:.5f} ± {:.5f}",
        quality.positions, quality.quantized_perplexity, quality.original_perplexity, quality.kl,
        quality.kl_error);
  }
  const std::int64_t weakened = weakened_corrections(report);
  if (weakened > 0) {
    text += fmt::format(
        "\n{} of {} linears correct less of earlier errors than --correction says, because more "
        "would have raised the error on the rows held out; more calibration rows allow more",
        weakened, report.linears.size());
  }
  return text + "\n";
}

}  // namespace

ConvertReport report_of(const ReportSource& source) {
  ConvertReport report;
  report.bytes = source.bytes;
  report.fitted_tokens = source.calibration.tokens();
  report.held_out_rows = std::ssize(source.calibration.held_out);
  report.held_out_tokens = source.calibration.held_out_tokens();
  report.self_made = source.calibration.dataset == kGeneratedDataset;
  report.quality = source.folder.quality();
  double bits = 0.0, weights = 0.0;
  for (std::size_t part = 0; part < source.parts; ++part) {
    for (LinearReport& linear : part_reports(source.folder.open_part(part))) {
      linear.weights = source.weights.at(linear.key);
      linear.block = part;
      if (part < report.quality.block_errors.size()) {
        bits += linear.bits * static_cast<double>(linear.weights);
        weights += static_cast<double>(linear.weights);
      }
      report.linears.push_back(std::move(linear));
    }
  }
  report.bits_per_weight = bits / weights;
  return report;
}

std::int64_t weakened_corrections(const ConvertReport& report) {
  return std::count_if(report.linears.begin(), report.linears.end(),
                       [](const LinearReport& linear) { return linear.kept_correction < 1.0; });
}

std::vector<BlockReport> blocks_of(const ConvertReport& report) {
  std::vector<BlockReport> blocks;
  std::vector<double> weights;
  const std::vector<double>& errors = report.quality.block_errors;
  for (const LinearReport& linear : report.linears) {
    if (linear.block >= blocks.size()) {
      blocks.resize(linear.block + 1);
      weights.resize(linear.block + 1);
    }
    const auto own = static_cast<double>(linear.weights);
    blocks[linear.block].bits += own * linear.bits;
    blocks[linear.block].relative_error = linear.relative_error;
    weights[linear.block] += own;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool head = i >= errors.size();
    blocks[i].name = head ? "head" : std::to_string(i);
    if (weights[i] > 0.0) blocks[i].bits /= weights[i];
    if (!head) blocks[i].relative_error = errors[i];
  }
  return blocks;
}

bool has_prediction(const ConvertReport& report) { return std::isfinite(report.predicted_kl); }

std::vector<KindReport> kinds_of(const ConvertReport& report) {
  std::map<std::string, double> sums;
  if (!has_prediction(report)) return {};
  for (const LinearReport& linear : report.linears) {
    if (linear.block < report.quality.block_errors.size()) {
      sums[kind_of(linear.key)] += linear.predicted_kl;
    }
  }
  std::vector<KindReport> kinds;
  for (const auto& [kind, sum] : sums) kinds.push_back({kind, sum});
  std::stable_sort(kinds.begin(), kinds.end(), [](const KindReport& a, const KindReport& b) {
    return a.predicted_kl > b.predicted_kl;
  });
  return kinds;
}

std::string perplexity_warning(const ConvertReport& report) {
  const OutputQuality& quality = report.quality;
  if (quality.positions == 0) return {};
  if (quality.quantized_perplexity <= kDoubtfulPerplexity) return {};
  const bool keeps = quality.quantized_perplexity < kKeptPerplexity * quality.original_perplexity;
  if (report.self_made && keeps && quality.original_perplexity < kFailedPerplexity) return {};
  const std::string figures =
      fmt::format("the perplexity of the rows held out is {:.1f} ({:.1f} before quantization)",
                  quality.quantized_perplexity, quality.original_perplexity);
  const bool before = quality.original_perplexity > kDoubtfulPerplexity;
  // Written so that a figure that is no number counts as failed.
  if (!(quality.quantized_perplexity < kFailedPerplexity)) {
    return figures + (before ? "; the original model does not work on these rows: check its files "
                               "and the calibration text"
                             : "; the conversion failed, so do not use its result");
  }
  return figures + (before ? "; above about 30 something is wrong: check the original model and "
                             "whether the calibration text is of a kind that it knows"
                           : "; above about 30 something is wrong: try more bits or more "
                             "calibration rows");
}

Json to_json(const ConvertReport& report) {
  Json linears = Json::array();
  for (const LinearReport& linear : report.linears) {
    linears.push_back({{"key", linear.key},
                       {"block", linear.block},
                       {"bits", linear.bits},
                       {"relative_error", linear.relative_error},
                       {"kept_correction", linear.kept_correction},
                       {"predicted_kl", linear.predicted_kl}});
  }
  Json blocks = Json::array();
  for (const BlockReport& block : blocks_of(report)) {
    blocks.push_back(
        {{"block", block.name}, {"bits", block.bits}, {"relative_error", block.relative_error}});
  }
  Json quality = to_json(report.quality);
  quality.erase("block_errors");
  quality["rows"] = report.held_out_rows;
  quality["tokens"] = report.held_out_tokens;
  return {{"device", report.device},
          {"target_bits", report.target_bits},
          {"bits_per_weight", report.bits_per_weight},
          {"predicted_kl", report.predicted_kl},
          {"bound", report.bound},
          {"bytes", report.bytes},
          {"fitted_tokens", report.fitted_tokens},
          {"held_out", std::move(quality)},
          {"weakened_corrections", weakened_corrections(report)},
          {"warning", perplexity_warning(report)},
          {"blocks", std::move(blocks)},
          {"linears", std::move(linears)}};
}

std::string to_text(const ConvertReport& report, const std::string& folder) {
  std::string text = linears_text(report) + blocks_text(report);
  text += fmt::format("\n{:.4f} bits per weight, {} in {}", report.bits_per_weight,
                      human_bytes(static_cast<double>(report.bytes)), folder);
  if (has_prediction(report)) {
    text +=
        fmt::format("; predicted KL divergence {:.4f} (no plan within these bits is below {:.4f})",
                    report.predicted_kl, report.bound);
  }
  if (!report.device.empty()) text += fmt::format("; computed on {}", report.device);
  return text + "\n" + calibration_text(report);
}

}  // namespace bl
