#include "quality_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace bl::test {
namespace {

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
  return found;
}

// The number behind `name="` in the n-th circle.
double circle(const std::string& svg, int n, const std::string& name) {
  std::size_t at = 0;
  for (int i = 0; i <= n; ++i) at = svg.find("<circle", at) + 1;
  return std::stod(svg.substr(svg.find(name + "=\"", at) + name.size() + 2));
}

TEST(QualityPlot, LargerFilesAreToTheRightAndBetterOnesBelow) {
  const std::vector<QualityPoint> points{{"3.0", 110e6, 0.9},
                                         {"4.0", 130e6, 0.09},
                                         {"5.0", 150e6, 0.009},
                                         {"base", 160e6, 0.0},
                                         {"broken", 120e6, std::nan("")}};
  const std::string svg = quality_plot("a <b>", points);
  ASSERT_EQ(times(svg, "<circle"), 3u);  // only what has a logarithm
  EXPECT_NEAR(circle(svg, 1, "cx") - circle(svg, 0, "cx"),
              circle(svg, 2, "cx") - circle(svg, 1, "cx"), 0.3);
  EXPECT_GT(circle(svg, 1, "cx"), circle(svg, 0, "cx"));
  EXPECT_NEAR(circle(svg, 1, "cy") - circle(svg, 0, "cy"),
              circle(svg, 2, "cy") - circle(svg, 1, "cy"), 0.3);
  EXPECT_GT(circle(svg, 1, "cy"), circle(svg, 0, "cy"));
  EXPECT_NE(svg.find(">0.05</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("a &lt;b&gt;"), std::string::npos);
  EXPECT_EQ(times(svg, "nan"), 0u);
}

TEST(QualityPlot, StandsWithOnePointOrNone) {
  for (const std::string& svg :
       {quality_plot("t", std::vector<QualityPoint>{{"one", 1e6, 0.1}}), quality_plot("t", {})}) {
    EXPECT_EQ(times(svg, "</svg>"), 1u);
    EXPECT_EQ(times(svg, "nan") + times(svg, "inf"), 0u) << svg;
  }
}

}  // namespace
}  // namespace bl::test
