#include "convert_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal.h"
#include "engine/host_memory.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

std::string text_of(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// The folder itself or the nearest one above it that exists.
fs::path existing_folder(const fs::path& folder) {
  fs::path path = fs::absolute(folder);
  while (!fs::exists(path) && path.has_relative_path()) path = path.parent_path();
  return path;
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  if (!fs::is_directory(folder)) return 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

// Bytes that will be written, by file system.
class DiskPlan {
 public:
  // `whole`: when complete; `done`: of these already there.
  void add(const fs::path& folder, std::uint64_t whole, std::uint64_t done) {
    const std::uint64_t bytes = whole - std::min(whole, done);
    const fs::path place = existing_folder(folder);
    struct stat status {};
    if (::stat(place.c_str(), &status) != 0) return;
    Need& need = needs_[status.st_dev];
    if (need.place.empty()) need.place = place;
    need.bytes += bytes;
    total_ += bytes;
  }
  std::uint64_t total() const { return total_; }
  void check() const {
    for (const auto& [device, need] : needs_) {
      std::error_code error;
      const fs::space_info space = fs::space(need.place, error);
      if (error || space.available >= need.bytes) continue;
      fail(ErrorCode::kIo,
           "{}: the conversion writes about {} there, but only {} are free; make room, or choose "
           "other places with -o and -cf",
           need.place.string(), text_of(need.bytes), text_of(space.available));
    }
  }

 private:
  struct Need {
    fs::path place;
    std::uint64_t bytes = 0;
  };
  std::map<dev_t, Need> needs_;
  std::uint64_t total_ = 0;
};

// Fewer tokens than a few for each input of a linear are fitted by heart.
void warn_of_few_tokens(const Calibration& calibration, const Converter& converter) {
  constexpr std::int64_t kTokensPerInput = 4;
  std::int64_t widest = 0;
  for (const PlannedMatrix& linear : converter.linears()) widest = std::max(widest, linear.in);
  if (calibration.tokens() >= kTokensPerInput * widest) return;
  log_warning(
      "{} tokens of calibration are few for linears of {} inputs: the result fits these rows, and "
      "other text much less; give more rows (-r) or longer ones (-l), {} tokens or more",
      calibration.tokens(), widest, kTokensPerInput * widest);
}

DiskPlan disk_plan(const ConvertOptions& options, const std::vector<PlannedRate>& rates,
                   std::uint64_t measurement) {
  DiskPlan disk;
  const fs::path work = options.work;
  disk.add(work, measurement, bytes_in(work));
  for (const PlannedRate& rate : rates) {
    // Parts and result both hold the quantized weights.
    disk.add(work, rate.bytes, rate.bits ? bytes_in(work / rate_name(*rate.bits)) : 0);
    disk.add(rate.result, rate.bytes, bytes_in(rate.result));
  }
  return disk;
}

}  // namespace

void plan_conversion(const ConvertOptions& options, Converter& converter,
                     const Calibration& calibration, const std::vector<PlannedRate>& rates) {
  const ConvertEstimate estimate = converter.estimate();
  const bool measured = converter.is_measured();
  const DiskPlan disk = disk_plan(options, rates, measured ? 0 : estimate.measurement_bytes);
  std::string names;
  for (const PlannedRate& rate : rates) {
    names += (names.empty() ? "" : ", ") +
             (rate.bits ? rate_name(*rate.bits) : std::string("the most bits that fit"));
  }
  log_info("plan: {} tokens of calibration, {}; {}", calibration.tokens(),
           measured ? "already measured" : "measured once", names);
  log_info(
      "plan: about {}{} for each rate if nothing of it is done; memory about {}{}, disk about {}",
      measured ? "" : human_time(estimate.measure_seconds) + " to measure and ",
      human_time(estimate.rate_seconds), text_of(estimate.memory),
      estimate.device_memory > 0 ? " and " + text_of(estimate.device_memory) + " of the card" : "",
      text_of(disk.total()));
  warn_of_few_tokens(calibration, converter);
  disk.check();
  const std::uint64_t available = available_host_memory();
  if (estimate.memory > available) {
    fail(
        ErrorCode::kOutOfMemory,
        "the conversion needs about {} of memory, and {} are available; give fewer or shorter rows "
        "with -r and -l, fewer --sensitivity_tokens, or use a larger machine",
        text_of(estimate.memory), text_of(available));
  }
}

}  // namespace bl
