#include "convert/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace bl {
namespace {

// In pixels of a plot that is as wide as its page.
constexpr double kWidth = 900.0;
constexpr double kLeft = 64.0;     // for numbers of the axis
constexpr double kHeight = 180.0;  // of the upright bars
constexpr double kTop = 10.0;
constexpr double kRowHeight = 22.0;
constexpr double kRowLabels = 220.0;
constexpr double kRowValues = 90.0;
constexpr std::size_t kMostLabels = 32;

double drawn(double value) { return std::isfinite(value) && value > 0.0 ? value : 0.0; }

double largest_of(std::span<const PlotBar> bars) {
  double largest = 0.0;
  for (const PlotBar& bar : bars) largest = std::max(largest, drawn(bar.value));
  return largest > 0.0 ? largest : 1.0;
}

// 1, 2 or 5 times a power of ten: the distance of at most five lines from 0 to `largest`.
double step_below(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(largest / 5.0)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (largest / (factor * power) <= 5.0) return factor * power;
  }
  return 10.0 * power;
}

std::string opening(const std::string& title, double height) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                     height, escaped_markup(title));
}

std::string tip(const PlotBar& bar) {
  return fmt::format("<title>{}: {:.4g}</title>", escaped_markup(bar.label), bar.value);
}

}  // namespace

std::string escaped_markup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string column_plot(const std::string& title, std::span<const PlotBar> bars) {
  const double largest = largest_of(bars);
  const auto y_of = [&](double value) { return kTop + kHeight * (1.0 - value / largest); };
  std::string svg = opening(title, kTop + kHeight + 24.0);
  const double step = step_below(largest);
  for (double value = 0.0; value <= largest * (1.0 + 1e-9); value += step) {
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.3g}</text>\n",
        kLeft, kWidth, y_of(value), kLeft - 6.0, y_of(value) + 4.0, value);
  }
  const double pitch =
      (kWidth - kLeft) / static_cast<double>(std::max<std::size_t>(bars.size(), 1));
  const std::size_t every = (bars.size() + kMostLabels - 1) / kMostLabels;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double x = kLeft + pitch * static_cast<double>(i);
    const double y = y_of(drawn(bars[i].value));
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>\n",
        x + 0.15 * pitch, y, 0.7 * pitch, kTop + kHeight - y, tip(bars[i]));
    const std::size_t behind = bars.size() - 1 - i;
    if (behind == 0 || (i % every == 0 && behind >= every)) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         x + 0.5 * pitch, kTop + kHeight + 16.0, escaped_markup(bars[i].label));
    }
  }
  return svg + "</svg>\n";
}

std::string row_plot(const std::string& title, std::span<const PlotBar> bars) {
  const double largest = largest_of(bars);
  std::string svg = opening(title, kRowHeight * static_cast<double>(bars.size()) + 4.0);
  const double room = kWidth - kRowLabels - kRowValues;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double y = kRowHeight * static_cast<double>(i);
    const double width = room * drawn(bars[i].value) / largest;
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.3e}</text>\n",
        kRowLabels - 8.0, y + 16.0, escaped_markup(bars[i].label), kRowLabels, y + 4.0, width,
        kRowHeight - 6.0, tip(bars[i]), kRowLabels + width + 6.0, y + 16.0, bars[i].value);
  }
  return svg + "</svg>\n";
}

}  // namespace bl
