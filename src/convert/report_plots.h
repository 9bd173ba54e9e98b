#pragma once
// Bar charts as SVG elements for an HTML page, whose style sheet colors them.

#include <span>
#include <string>
#include <string_view>

namespace bl {

struct PlotBar {
  std::string label;
  double value = 0.0;  // a value that is no finite number or below 0 is drawn as 0
};

// The text with the characters that mean something in HTML and SVG escaped.
std::string escaped_markup(std::string_view text);

// Upright bars from the left to the right; some labels are left out where there are many. Each bar
// says its label and value when it is pointed at. `title` is what screen readers say.
std::string column_plot(const std::string& title, std::span<const PlotBar> bars);
// Bars from the top to the bottom, with their labels and values.
std::string row_plot(const std::string& title, std::span<const PlotBar> bars);

}  // namespace bl
