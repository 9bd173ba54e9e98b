#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/measurement.h"
#include "convert/quantize_block.h"
#include "format/safetensors_file.h"

namespace bl {

// What the report says about a linear.
struct LinearReport {
  std::string key;
  double bits = 0.0;            // per weight, scales and permutation included
  double relative_error = 0.0;  // of the output: loss / mean square of the wanted output
  double predicted_kl = 0.0;
};

// Throws kInvalidArgument where there is a folder of this name that a conversion cannot begin or go
// on in, because it holds something else. Rows of calibration that were generated for a conversion
// (calibration.json) may be there before it begins.
void check_job_folder(const std::filesystem::path& folder);

// The working folder of a conversion: what is finished stays, so that a conversion that was killed
// goes on where it was and gives the same bytes. Each file appears only when it is complete.
//
//   job.json                what is converted and how; a job with other content is refused
//   measurement.json        when measuring is over
//   part-00000.safetensors  when a block is quantized; the head is the last part
class JobFolder {
 public:
  // Creates the folder, or continues the job in it. `description`: everything that the result
  // depends on. Throws kInvalidArgument if another job is there, unless `restart` is given, which
  // removes that job's files.
  JobFolder(std::filesystem::path folder, const Json& description, bool restart);

  std::optional<ErrorMeasurement> measurement() const;
  void save(const ErrorMeasurement& measurement) const;

  bool has_part(std::size_t part) const;
  void save_part(std::size_t part, const std::vector<QuantizedLinear>& linears) const;
  SafetensorsFile open_part(std::size_t part) const;

 private:
  std::filesystem::path part_path(std::size_t part) const;
  std::filesystem::path folder_;
};

// The weights of the linears of a part as decoded_rows() gives them, by key.
std::map<std::string, std::vector<std::uint16_t>> part_rows(const SafetensorsFile& part);
// What save_part() wrote about each linear.
std::vector<LinearReport> part_reports(const SafetensorsFile& part);

}  // namespace bl
