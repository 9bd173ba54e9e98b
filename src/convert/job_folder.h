#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/fold_trial.h"
#include "convert/measurement.h"
#include "convert/output_quality.h"
#include "format/safetensors_file.h"

namespace bl {

// What the report says about a linear.
struct LinearReport {
  std::string key;
  double bits = 0.0;            // per weight, scales and permutation included
  double relative_error = 0.0;  // of the output: loss / mean square of the wanted output
  double predicted_kl = 0.0;
  double kept_correction = 1.0;  // QuantizedLinear::kept_correction
  std::int64_t weights = 0;      // without padding
  std::size_t block = 0;         // its place in the model; the head follows the last block
};

// Throws kInvalidArgument where there is a folder of this name that a conversion cannot begin or go
// on in, because it holds something else. Rows of calibration that were generated for a conversion
// (calibration.json) may be there before it begins.
void check_job_folder(const std::filesystem::path& folder);

// The working folder of conversions of one model with one calibration: what is finished stays, so
// that a conversion that was killed goes on where it was and gives the same bytes. Each file
// appears only when it is complete.
//
//   job.json          what is converted and how it is measured; other content is refused
//   calibration.json  rows of calibration that the caller has generated for it
//   folds.json        when the folds are chosen
//   measurement.json  when measuring is over; serves every rate
//   results.json      the model folders that were written, what of, and the sizes of their files
//   4.0bpw/           one folder for each rate, see RateFolder
class JobFolder {
 public:
  // Creates the folder, or continues the job in it. `description`: everything that the measurement
  // depends on. Throws kInvalidArgument if another job is there, unless `restart` is given, which
  // removes that job's files.
  JobFolder(std::filesystem::path folder, const Json& description, bool restart);

  std::optional<ErrorMeasurement> measurement() const;
  // `measurement`: what to_json() makes of one, and further keys for other readers.
  void save(const Json& measurement) const;
  std::optional<FoldChoice> folds() const;
  void save(const FoldChoice& choice) const;
  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// The rate as folders and reports name it, with at least one decimal: "4.0bpw", "4.125bpw".
std::string rate_name(double bits);

// The part of a job that belongs to one rate.
//
//   rate.json               how the rate is quantized; other content is refused
//   part-00000.safetensors  when a block is quantized; a quantized head is the last part
//   quality.json            when everything is quantized: how far the model is from the original
class RateFolder {
 public:
  // Creates the folder in the job's, or continues what is there. `description`: everything that the
  // parts depend on beside the job's. Throws kInvalidArgument where the folder differs in that.
  RateFolder(const JobFolder& job, double bits, const Json& description);

  bool has_part(std::size_t part) const;
  // `unreached_experts`: experts of the block that no token has chosen.
  void save_part(std::size_t part, const std::vector<QuantizedLinear>& linears,
                 int unreached_experts = 0) const;
  SafetensorsFile open_part(std::size_t part) const;
  // Whether all parts are there, and the figures of the whole model.
  bool is_finished() const;
  void finish(const OutputQuality& quality) const;
  OutputQuality quality() const;

 private:
  std::filesystem::path part_path(std::size_t part) const;
  std::filesystem::path quality_path() const;
  std::filesystem::path folder_;
};

// Whether the job in `work` has noted that it wrote a model that was made of this to `result`, and
// the weight files are still there as they were.
bool is_noted(const std::filesystem::path& work, const std::filesystem::path& result,
              const Json& made_of);
// Notes that. `files`: the folder in which the weight files are now.
void note_written(const std::filesystem::path& work, const std::filesystem::path& result,
                  const std::filesystem::path& files, const Json& made_of);

// What save_part() wrote: the linears of a part, by key; what the report says about each; and how
// many experts no token has chosen. All throw kInvalidFile where the part is damaged.
std::map<std::string, WeightMatrix> part_matrices(const SafetensorsFile& part);
std::vector<LinearReport> part_reports(const SafetensorsFile& part);
int part_unreached_experts(const SafetensorsFile& part);

}  // namespace bl
