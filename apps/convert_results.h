#pragma once
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "convert/convert_report.h"
#include "convert_options.h"

namespace bl {

// Says what became of the models of a conversion: tables on stdout as each is made, or one JSON
// document at the end, and the page of --report.
class ConvertResults {
 public:
  // `options` must outlive this.
  explicit ConvertResults(const ConvertOptions& options) : options_(options) {}

  // A model that was written to `folder`.
  void add(ConvertReport report, const std::filesystem::path& folder);
  // Must be called once, after the last model.
  void finish() const;

 private:
  const ConvertOptions& options_;
  std::vector<ConvertReport> reports_;
  std::vector<std::filesystem::path> folders_;
};

}  // namespace bl
