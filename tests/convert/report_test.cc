// What the report says, as text, JSON and a page.

#include <gtest/gtest.h>

#include <cmath>

#include "convert/report_page.h"
#include "convert/report_plots.h"

namespace bl::test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ConvertReport make_report(double original, double quantized) {
  ConvertReport report;
  report.target_bits = 4.0;
  report.bits_per_weight = 3.99;
  report.predicted_kl = 0.3;
  report.linears = {{"model.layers.0.self_attn.q_proj", 4.0, 0.01, 0.05, 1.0, 300, 0},
                    {"model.layers.0.mlp.down_proj", 3.0, 0.02, 0.1, 0.25, 100, 0},
                    {"model.layers.1.mlp.down_proj", 5.0, 0.03, 0.15, 1.0, 200, 1},
                    {"lm_head", 6.3, 0.001, 0.0, 1.0, 1000, 2}};
  report.fitted_tokens = 4096;
  report.held_out_rows = 2;
  report.held_out_tokens = 256;
  report.quality = {{0.25, 0.5}, 100, original, quantized, 0.02, 0.003};
  return report;
}

TEST(ConvertReport, BlocksAndKinds) {
  const ConvertReport report = make_report(10, 11);
  const std::vector<BlockReport> blocks = blocks_of(report);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_DOUBLE_EQ(blocks[0].bits, (300 * 4.0 + 100 * 3.0) / 400);
  EXPECT_DOUBLE_EQ(blocks[0].relative_error, 0.25);
  EXPECT_EQ(blocks[2].name, "head");
  EXPECT_DOUBLE_EQ(blocks[2].relative_error, 0.001);
  const std::vector<KindReport> kinds = kinds_of(report);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].kind, "mlp.down_proj");
  EXPECT_DOUBLE_EQ(kinds[0].predicted_kl, 0.25);
  EXPECT_EQ(kinds[1].kind, "self_attn.q_proj");
}

TEST(ConvertReport, WarnsAboutPerplexities) {
  EXPECT_EQ(perplexity_warning(make_report(10, 29)), "");
  EXPECT_TRUE(has(perplexity_warning(make_report(10, 31)), "try more bits"));
  EXPECT_TRUE(has(perplexity_warning(make_report(10, 31)), "31.0 (10.0 before"));
  EXPECT_TRUE(has(perplexity_warning(make_report(40, 45)), "check the original model"));
  EXPECT_TRUE(has(perplexity_warning(make_report(10, 5000)), "the conversion failed"));
  EXPECT_TRUE(has(perplexity_warning(make_report(10, std::nan(""))), "the conversion failed"));
  EXPECT_TRUE(has(perplexity_warning(make_report(9000, 9000)), "original model does not work"));
  EXPECT_EQ(to_json(make_report(10, 11)).at("warning"), "");
  ConvertReport self_made = make_report(46, 50);
  self_made.self_made = true;
  EXPECT_EQ(perplexity_warning(self_made), "");
  self_made.quality.quantized_perplexity = 100;
  EXPECT_TRUE(has(perplexity_warning(self_made), "100.0 (46.0 before"));
  self_made.quality.original_perplexity = 5000;
  self_made.quality.quantized_perplexity = 5100;
  EXPECT_TRUE(has(perplexity_warning(self_made), "original model does not work"));
  EXPECT_TRUE(has(to_text(make_report(10, 11), "OUT"),
                  "fitted to 4096 tokens; held out: 2 rows, 256 tokens, at 100 positions: "
                  "perplexity 11.0000, 10.0000 before; KL divergence 0.02000 ± "
                  "0.00300"));
}

TEST(ConvertReport, SaysWhatTheRowsHeldOutRejected) {
  const ConvertReport report = make_report(10, 11);
  EXPECT_EQ(weakened_corrections(report), 1);
  EXPECT_TRUE(has(to_text(report, "OUT"), "1 of 4 linears correct less of earlier errors"));
  const Json json = to_json(report);
  EXPECT_EQ(json.at("weakened_corrections"), 1);
  EXPECT_EQ(json.at("held_out").at("rows"), 2);
  EXPECT_EQ(json.at("held_out").at("tokens"), 256);
  EXPECT_EQ(json.at("linears").at(1).at("kept_correction"), 0.25);
}

TEST(ConvertReport, QualityGoesThroughJson) {
  OutputQuality quality = make_report(10, 11).quality;
  quality.quantized_perplexity = std::nan("");
  const OutputQuality back = quality_from_json(parse_json(json_text(to_json(quality)), "t"), "t");
  EXPECT_EQ(back.block_errors, quality.block_errors);
  EXPECT_EQ(back.positions, 100);
  EXPECT_TRUE(std::isnan(back.quantized_perplexity));
  EXPECT_DOUBLE_EQ(back.kl_error, 0.003);
  EXPECT_ANY_THROW(quality_from_json({{"positions", "many"}}, "t"));
}

// One file that asks for nothing else, in which a name cannot become markup.
TEST(ReportPage, IsSelfContainedAndEscaped) {
  ConvertReport report = make_report(10, 5000);
  report.linears[0].key = "model.layers.0.<script>alert(\"1\")</script>&'";
  const std::vector<ConvertReport> reports{report, make_report(10, 11)};
  const std::string page = report_page("<img src=x>", reports);
  for (const char* sign : {"<script", "<img", "http:", "https:", "url(", "<link", "@import"}) {
    EXPECT_FALSE(has(page, sign)) << sign;
  }
  EXPECT_TRUE(has(page, "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"));
  EXPECT_TRUE(has(page, "prefers-color-scheme: dark"));
  EXPECT_TRUE(has(page, "Warning: the perplexity"));
  std::size_t plots = 0;
  for (std::size_t at = 0; (at = page.find("<svg ", at)) != page.npos; ++at) ++plots;
  EXPECT_EQ(plots, 6u);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
  return found;
}

TEST(ReportPlots, DrawOneBarForEachValue) {
  std::vector<PlotBar> bars;
  for (int i = 0; i < 80; ++i) bars.push_back({std::to_string(i), 0.01 * i});
  bars.push_back({"head", std::nan("")});
  const std::string svg = column_plot("t", bars);
  EXPECT_EQ(count(svg, "<rect "), 81u);
  EXPECT_LE(count(svg, "text-anchor=\"middle\""), 33u);
  EXPECT_TRUE(has(svg, ">head</text>"));
  EXPECT_FALSE(has(svg, "y=\"nan"));
  EXPECT_LE(count(svg, "<line "), 6u);
  EXPECT_EQ(count(row_plot("t", bars), "<rect "), 81u);
  EXPECT_TRUE(has(column_plot("t", {}), "</svg>"));
}

}  // namespace
}  // namespace bl::test
