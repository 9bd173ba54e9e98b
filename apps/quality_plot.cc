#include "quality_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/terminal.h"
#include "convert/report_plots.h"

namespace bl {
namespace {

// In pixels.
constexpr double kWidth = 760.0, kHeight = 440.0;
constexpr double kLeft = 80.0, kRight = 150.0, kTop = 48.0, kBottom = 56.0;

// Light and dark pages need no style sheet beside the file.
constexpr const char* kStyle =
    "text { font: 12px system-ui, sans-serif; fill: #444 } line { stroke: #ddd }\n"
    "circle { fill: #2f6fb5 } .title { font-size: 15px; fill: #1a1a1a }\n"
    "rect { fill: #fff }\n"
    "@media (prefers-color-scheme: dark) { text { fill: #aaa } line { stroke: #3a3a3a }\n"
    "circle { fill: #6fa8e0 } .title { fill: #e6e6e6 } rect { fill: #161616 } }\n";

// A range of values and the pixels that it is drawn in.
struct Axis {
  double least = 0.0, most = 1.0;
  double from = 0.0, to = 0.0;
  double at(double value) const { return from + (value - least) / (most - least) * (to - from); }
};

// The axis with some room at both ends, also where all values are one.
Axis axis_of(const std::vector<double>& values, double from, double to) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double room = std::max(0.08 * (*most - *least), 1e-3 * std::abs(*most) + 1e-9);
  return {*least - room, *most + room, from, to};
}

std::string horizontal_line(double y, const std::string& label) {
  return fmt::format(
      "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
      kLeft, kWidth - kRight, y, y, kLeft - 8.0, y + 4.0, label);
}

// Lines at 1, 2 and 5 times powers of ten; `logs` is an axis of decimal logarithms.
std::string divergence_lines(const Axis& logs) {
  std::string lines;
  for (double power = std::floor(logs.least); power <= logs.most; power += 1.0) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if (at < logs.least || at > logs.most) continue;
      lines += horizontal_line(logs.at(at), fmt::format("{:.3g}", std::pow(10.0, at)));
    }
  }
  return lines;
}

std::string size_labels(const Axis& sizes) {
  constexpr int kLabels = 4;
  std::string labels;
  for (int i = 0; i <= kLabels; ++i) {
    const double bytes = sizes.least + (sizes.most - sizes.least) * i / kLabels;
    labels += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                          sizes.at(bytes), kHeight - kBottom + 20.0, human_bytes(bytes));
  }
  return labels;
}

}  // namespace

std::string quality_plot(const std::string& title, std::span<const QualityPoint> points) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\">\n<style>{2}</style>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n"
      "<text class=\"title\" x=\"{3:.0f}\" y=\"26\">{4}</text>\n",
      kWidth, kHeight, kStyle, kLeft, escaped_markup(title));
  std::vector<QualityPoint> drawn;
  std::vector<double> sizes, logs;
  for (const QualityPoint& point : points) {
    if (!std::isfinite(point.kld) || point.kld <= 0.0) continue;
    drawn.push_back(point);
    sizes.push_back(point.bytes);
    logs.push_back(std::log10(point.kld));
  }
  if (!drawn.empty()) {
    const Axis x = axis_of(sizes, kLeft, kWidth - kRight);
    const Axis y = axis_of(logs, kHeight - kBottom, kTop);
    svg += divergence_lines(y) + size_labels(x);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const std::string label = escaped_markup(drawn[i].label);
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: {}, KL divergence {:.5f}</title>"
          "</circle><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
          x.at(sizes[i]), y.at(logs[i]), label, human_bytes(sizes[i]), drawn[i].kld,
          x.at(sizes[i]) + 8.0, y.at(logs[i]) + 4.0, label);
    }
  }
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">size of the weight files</text>\n",
      (kLeft + kWidth - kRight) / 2.0, kHeight - 12.0);
  return svg + "</svg>\n";
}

}  // namespace bl
