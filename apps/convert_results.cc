#include "convert_results.h"

#include "base/file.h"
#include "base/log.h"
#include "base/pending_folder.h"
#include "convert/report_page.h"
#include "results.h"

namespace bl {

void ConvertResults::add(ConvertReport report, const std::filesystem::path& folder) {
  const std::string warning = perplexity_warning(report);
  if (!warning.empty()) log_warning("{}: {}", rate_name(report.target_bits), warning);
  if (!options_.json) write_result(to_text(report, folder.string()));
  reports_.push_back(std::move(report));
  folders_.push_back(folder);
}

void ConvertResults::finish() const {
  if (options_.json) {
    Json results = Json::array();
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      Json entry = to_json(reports_[i]);
      entry["folder"] = folders_[i].string();
      results.push_back(std::move(entry));
    }
    write_json({{"results", std::move(results)}});
  }
  if (options_.report.empty()) return;
  const std::string name = normalized_folder(options_.in).filename().string();
  write_file_atomically(options_.report, report_page(name, reports_));
  log_info("report: {}", options_.report);
}

}  // namespace bl
