#include "convert/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/terminal.h"
#include "convert/report_plots.h"

namespace bl {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1a1a1a; --dim: #666; --line: #ddd; --bar: #2f6fb5;
  --paper: #fff; --warn: #a33; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --dim: #999; --line: #3a3a3a; --bar: #6fa8e0; --paper: #161616;
    --warn: #f09090; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .8rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
svg line { stroke: var(--line); }
svg rect { fill: var(--bar); }
.warning { color: var(--warn); font-weight: 600; }
details { margin: 1rem 0; }
)";

std::string table_row(const std::vector<std::string>& cells, const char* cell = "td") {
  std::string row = "<tr>";
  for (const std::string& text : cells) {
    row += fmt::format("<{}>{}</{}>", cell, escaped_markup(text), cell);
  }
  return row + "</tr>\n";
}

std::string summary_table(std::span<const ConvertReport> reports) {
  std::string text = "<table>\n" + table_row({"rate", "bits per weight", "size", "predicted KL",
                                              "KL of rows held out", "perplexity", "before"},
                                             "th");
  for (const ConvertReport& report : reports) {
    const OutputQuality& quality = report.quality;
    text += table_row({rate_name(report.target_bits), fmt::format("{:.4f}", report.bits_per_weight),
                       human_bytes(static_cast<double>(report.bytes)),
                       has_prediction(report) ? fmt::format("{:.4f}", report.predicted_kl) : "–",
                       fmt::format("{:.5f} ± {:.5f}", quality.kl, quality.kl_error),
                       fmt::format("{:.4f}", quality.quantized_perplexity),
                       fmt::format("{:.4f}", quality.original_perplexity)});
  }
  return text + "</table>\n";
}

std::string plots_of(const ConvertReport& report) {
  std::vector<PlotBar> bits, errors, kinds;
  for (const BlockReport& block : blocks_of(report)) {
    bits.push_back({block.name, block.bits});
    errors.push_back({block.name, block.relative_error});
  }
  for (const KindReport& kind : kinds_of(report)) kinds.push_back({kind.kind, kind.predicted_kl});
  std::string text = "<h3>Bits per weight by layer</h3>\n" +
                     column_plot("Bits per weight by layer", bits) +
                     "<h3>Relative error by layer</h3>\n<p>Of the residual stream behind each "
                     "layer, and of the output of the head.</p>\n" +
                     column_plot("Relative error by layer", errors);
  if (!has_prediction(report)) return text;
  return text + "<h3>Predicted KL divergence by kind of linear</h3>\n" +
         row_plot("Predicted KL divergence by kind of linear", kinds);
}

std::string linears_table(const ConvertReport& report) {
  std::string text = "<details><summary>All linears</summary>\n<table>\n" +
                     table_row({"linear", "bits", "relative error", "predicted KL"}, "th");
  for (const LinearReport& linear : report.linears) {
    text += table_row({linear.key, fmt::format("{:.3f}", linear.bits),
                       fmt::format("{:.3e}", linear.relative_error),
                       fmt::format("{:.3e}", linear.predicted_kl)});
  }
  return text + "</table>\n</details>\n";
}

std::string section_of(const ConvertReport& report) {
  std::string text = fmt::format("<section>\n<h2>{}</h2>\n", rate_name(report.target_bits));
  const std::string warning = perplexity_warning(report);
  if (!warning.empty()) {
    text += "<p class=\"warning\">Warning: " + escaped_markup(warning) + ".</p>\n";
  }
  text += "<p>";
  if (has_prediction(report)) {
    text += fmt::format("No plan within these bits has a predicted KL divergence below {:.4f}. ",
                        report.bound);
  }
  text += fmt::format(
      "The weights were fitted to {} tokens. Perplexity and KL divergence are those of {} "
      "positions "
      "of {} rows that were held out. {} of {} linears correct less of earlier errors than was "
      "asked "
      "for, because more would have raised the error on these rows.</p>\n",
      report.fitted_tokens, report.quality.positions, report.held_out_rows,
      weakened_corrections(report), report.linears.size());
  const std::string folds = to_text(report.folds);
  if (!folds.empty()) text += "<p>" + escaped_markup(folds) + ".</p>\n";
  return text + plots_of(report) + linears_table(report) + "</section>\n";
}

}  // namespace

std::string report_page(const std::string& model, std::span<const ConvertReport> reports) {
  const std::string title = escaped_markup("Conversion of " + model);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      title, kStyle, title);
  page += summary_table(reports);
  for (const ConvertReport& report : reports) page += section_of(report);
  return page + "</body>\n</html>\n";
}

}  // namespace bl
