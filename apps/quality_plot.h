#pragma once
#include <span>
#include <string>

namespace bl {

// A model in a plot of quality against size.
struct QualityPoint {
  std::string label;
  double bytes = 0.0;
  double kld = 0.0;
};

// A whole SVG file: sizes to the right, KL divergences upwards on a logarithmic scale, and a label
// at each point. Points whose divergence is no number above 0 are left out.
std::string quality_plot(const std::string& title, std::span<const QualityPoint> points);

}  // namespace bl
