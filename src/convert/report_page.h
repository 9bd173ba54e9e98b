#pragma once
#include <span>
#include <string>

#include "convert/convert_report.h"

namespace bl {

// One HTML page about the conversion of a model at one or several rates, with its style and plots
// (SVG) inside: no scripts, nothing fetched, light or dark as the reader's system is. All names are
// escaped. `model`: its name in the title.
std::string report_page(const std::string& model, std::span<const ConvertReport> reports);

}  // namespace bl
