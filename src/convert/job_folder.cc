#include "convert/job_folder.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "convert/packed_tensors.h"
#include "format/safetensors_writer.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

bool is_part(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("part-") && name.ends_with(".safetensors");
}

// Removes the files of a job, and nothing else that may be there. job.json goes last, so that an
// interruption leaves a folder that can be restarted.
void remove_job(const fs::path& folder) {
  for (const char* name : {"folds.json", "measurement.json", "results.json"}) {
    fs::remove(folder / name);
  }
  const std::vector<fs::path> entries{fs::directory_iterator(folder), fs::directory_iterator()};
  for (const fs::path& entry : entries) {
    if (is_part(entry)) fs::remove(entry);  // of a job before there were folders of rates
    if (!fs::is_regular_file(entry / "rate.json")) continue;
    const std::vector<fs::path> files{fs::directory_iterator(entry), fs::directory_iterator()};
    for (const fs::path& file : files) {
      if (is_part(file)) fs::remove(file);
    }
    for (const char* name : {"quality.json", "rate.json"}) fs::remove(entry / name);
    if (fs::is_empty(entry)) fs::remove(entry);
  }
  fs::remove(folder / "job.json");
}

// Removes what a process that was killed had begun to write in the folder and in those of its
// rates.
void remove_unfinished_files(const fs::path& folder) {
  const std::vector<fs::path> entries{fs::directory_iterator(folder), fs::directory_iterator()};
  for (const fs::path& entry : entries) {
    if (is_unfinished_file(entry)) fs::remove(entry);
    if (fs::is_regular_file(entry / "rate.json")) remove_unfinished_files(entry);
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::kIo, "cannot create {}: {}", folder.string(), error.message());
}

const std::string& part_metadata(const SafetensorsFile& part, const std::string& key) {
  const auto found = part.metadata().find(key);
  if (found == part.metadata().end()) {
    fail(ErrorCode::kInvalidFile, "{} is not a part of a conversion: it has no {}", part.what(),
         key);
  }
  return found->second;
}

std::string changed_key(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key) || before[key] != value) return key;
  }
  return "version";
}

}  // namespace

void check_job_folder(const fs::path& folder) {
  if (!fs::exists(folder) || fs::exists(folder / "job.json")) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == "calibration.json" || is_unfinished_file(entry.path())) continue;
    fail(ErrorCode::kInvalidArgument, "{} is not empty and holds no conversion; give a new folder",
         folder.string());
  }
}

JobFolder::JobFolder(fs::path folder, const Json& description, bool restart)
    : folder_(std::move(folder)) {
  make_folder(folder_);
  const fs::path job = folder_ / "job.json";
  check_job_folder(folder_);
  if (fs::exists(job)) {
    remove_unfinished_files(folder_);
    if (restart) remove_job(folder_);
  }
  if (!fs::exists(job)) {
    write_file_atomically(job, json_text(description, 2) + "\n");
    return;
  }
  const Json before = read_json_file(job);
  if (before != description) {
    fail(
        ErrorCode::kInvalidArgument,
        "{} holds a conversion that differs in \"{}\"; use another folder, or --no_resume to start "
        "again in this one",
        folder_.string(), changed_key(before, description));
  }
}

std::optional<ErrorMeasurement> JobFolder::measurement() const {
  const fs::path path = folder_ / "measurement.json";
  if (!fs::exists(path)) return std::nullopt;
  return measurement_from_json(read_json_file(path, std::uint64_t{1} << 30), path.string());
}

void JobFolder::save(const Json& measurement) const {
  write_file_atomically(folder_ / "measurement.json", json_text(measurement) + "\n");
}

std::optional<FoldChoice> JobFolder::folds() const {
  const fs::path path = folder_ / "folds.json";
  if (!fs::exists(path)) return std::nullopt;
  return fold_choice_from_json(read_json_file(path), path.string());
}

void JobFolder::save(const FoldChoice& choice) const {
  write_file_atomically(folder_ / "folds.json", json_text(to_json(choice), 2) + "\n");
}

std::string rate_name(double bits) {
  std::string text = fmt::format("{}", bits);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text + "bpw";
}

RateFolder::RateFolder(const JobFolder& job, double bits, const Json& description)
    : folder_(job.path() / rate_name(bits)) {
  make_folder(folder_);
  const fs::path rate = folder_ / "rate.json";
  if (!fs::exists(rate)) {
    write_file_atomically(rate, json_text(description, 2) + "\n");
    return;
  }
  const Json before = read_json_file(rate);
  if (before != description) {
    fail(ErrorCode::kInvalidArgument,
         "{} was quantized with another value of \"{}\"; remove that folder, which keeps the "
         "measurement, or use another working folder",
         folder_.string(), changed_key(before, description));
  }
}

namespace {

// Paths need not be UTF-8, but keys of JSON do.
std::string key_of(const fs::path& result) {
  const std::string& path = result.native();
  if (is_valid_utf8(path)) return path;
  std::string hex = "hex:";
  for (const char c : path) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

// The weight files in a folder, and their sizes.
Json weight_files(const fs::path& folder) {
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors" || !entry.is_regular_file()) continue;
    files[entry.path().filename().string()] = entry.file_size();
  }
  return files;
}

}  // namespace

bool is_noted(const fs::path& work, const fs::path& result, const Json& made_of) {
  const fs::path file = work / "results.json";
  if (!fs::exists(file) || !fs::is_regular_file(result / "config.json")) return false;
  const Json results = read_json_file(file);
  const auto found = results.find(key_of(result));
  if (found == results.end()) return false;
  return *found == Json({{"made_of", made_of}, {"files", weight_files(result)}});
}

void note_written(const fs::path& work, const fs::path& result, const fs::path& files,
                  const Json& made_of) {
  const fs::path file = work / "results.json";
  Json results = fs::exists(file) ? read_json_file(file) : Json::object();
  if (!results.is_object()) fail(ErrorCode::kInvalidFile, "{} is not an object", file.string());
  results[key_of(result)] = {{"made_of", made_of}, {"files", weight_files(files)}};
  write_file_atomically(file, json_text(results, 2) + "\n");
}

fs::path RateFolder::part_path(std::size_t part) const {
  return folder_ / fmt::format("part-{:05}.safetensors", part);
}

bool RateFolder::has_part(std::size_t part) const { return fs::exists(part_path(part)); }

fs::path RateFolder::quality_path() const { return folder_ / "quality.json"; }

bool RateFolder::is_finished() const { return fs::exists(quality_path()); }

void RateFolder::finish(const OutputQuality& quality) const {
  write_file_atomically(quality_path(), json_text(to_json(quality), 2) + "\n");
}

OutputQuality RateFolder::quality() const {
  return quality_from_json(read_json_file(quality_path()), quality_path().string());
}

void RateFolder::save_part(std::size_t part, const std::vector<QuantizedLinear>& linears,
                           int unreached_experts) const {
  std::map<std::string, std::span<const std::byte>> bytes;
  std::vector<TensorPlan> plans;
  SafetensorsMetadata metadata;
  Json reports = Json::array();
  for (const QuantizedLinear& linear : linears) {
    for (const PackedTensor& tensor : linear.packed.tensors) {
      bytes[tensor.plan.name] = tensor.bytes;
      plans.push_back(tensor.plan);
    }
    metadata["format"] = linear.packed.format;
    reports.push_back({{"key", linear.key},
                       {"bits", linear.packed.bits_per_weight},
                       {"error", linear.power > 0 ? linear.error / linear.power : 0.0},
                       {"kept_correction", linear.kept_correction}});
  }
  metadata["report"] = json_text(reports);
  metadata["unreached_experts"] = std::to_string(unreached_experts);
  SafetensorsWriter writer(part_path(part), std::move(plans), metadata);
  for (const TensorPlan& plan : writer.tensors()) writer.write(bytes.at(plan.name));
  writer.commit();
}

SafetensorsFile RateFolder::open_part(std::size_t part) const {
  return SafetensorsFile(part_path(part));
}

std::map<std::string, WeightMatrix> part_matrices(const SafetensorsFile& part) {
  std::map<std::string, WeightMatrix> matrices;
  const auto tag = part.metadata().find("format");
  const std::string format = tag == part.metadata().end() ? std::string() : tag->second;
  for (const LinearReport& linear : part_reports(part)) {
    matrices.emplace(linear.key, load_packed(part, linear.key, format));
  }
  return matrices;
}

std::vector<LinearReport> part_reports(const SafetensorsFile& part) {
  std::vector<LinearReport> reports;
  try {
    for (const Json& entry : parse_json(part_metadata(part, "report"), part.what())) {
      reports.push_back({.key = entry.at("key").get<std::string>(),
                         .bits = entry.at("bits").get<double>(),
                         .relative_error = entry.at("error").get<double>(),
                         .kept_correction = entry.at("kept_correction").get<double>()});
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{} is not a part of a conversion: {}", part.what(),
         error.what());
  }
  return reports;
}

int part_unreached_experts(const SafetensorsFile& part) {
  const std::string& text = part_metadata(part, "unreached_experts");
  int experts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), experts);
  if (error != std::errc() || end != text.data() + text.size() || experts < 0) {
    fail(ErrorCode::kInvalidFile, "{} is not a part of a conversion: unreached_experts is \"{}\"",
         part.what(), text.substr(0, 40));
  }
  return experts;
}

}  // namespace bl
