#include "convert/job_folder.h"

#include "base/error.h"
#include "base/file.h"
#include "convert/packed_tensors.h"
#include "format/dequantize.h"
#include "format/safetensors_writer.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

bool is_job_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "job.json" || name == "measurement.json" ||
         (name.starts_with("part-") && name.ends_with(".safetensors"));
}

std::string changed_key(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key) || before[key] != value) return key;
  }
  return "version";
}

}  // namespace

JobFolder::JobFolder(fs::path folder, const Json& description, bool restart)
    : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail(ErrorCode::kIo, "cannot create {}: {}", folder_.string(), error.message());
  const fs::path job = folder_ / "job.json";
  if (restart) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (is_job_file(entry.path())) fs::remove(entry.path());
    }
  }
  if (!fs::exists(job)) {
    if (!fs::is_empty(folder_)) {
      fail(ErrorCode::kInvalidArgument,
           "{} is not empty and holds no conversion; give a new folder", folder_.string());
    }
    write_file_atomically(job, json_text(description, 2) + "\n");
    return;
  }
  const Json before = read_json_file(job);
  if (before != description) {
    fail(
        ErrorCode::kInvalidArgument,
        "{} holds a conversion that differs in \"{}\"; use another folder, or --no-resume to start "
        "again in this one",
        folder_.string(), changed_key(before, description));
  }
}

std::optional<ErrorMeasurement> JobFolder::measurement() const {
  const fs::path path = folder_ / "measurement.json";
  if (!fs::exists(path)) return std::nullopt;
  return measurement_from_json(read_json_file(path, std::uint64_t{1} << 30), path.string());
}

void JobFolder::save(const ErrorMeasurement& measurement) const {
  write_file_atomically(folder_ / "measurement.json", json_text(to_json(measurement)) + "\n");
}

fs::path JobFolder::part_path(std::size_t part) const {
  return folder_ / fmt::format("part-{:05}.safetensors", part);
}

bool JobFolder::has_part(std::size_t part) const { return fs::exists(part_path(part)); }

void JobFolder::save_part(std::size_t part, const std::vector<QuantizedLinear>& linears) const {
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<TensorPlan> plans;
  SafetensorsMetadata metadata;
  Json reports = Json::array();
  for (const QuantizedLinear& linear : linears) {
    for (PackedTensor& tensor : packed_tensors(linear.key, linear.matrix)) {
      bytes[tensor.plan.name] = std::move(tensor.bytes);
      plans.push_back(std::move(tensor.plan));
    }
    metadata["format"] = format_tag(linear.matrix);
    const SlotCodes& codes = codes_of(linear.matrix);
    const auto weights = static_cast<double>(codes.in * codes.out);
    reports.push_back({{"key", linear.key},
                       {"bits", static_cast<double>(stored_bits(linear.matrix)) / weights},
                       {"error", linear.power > 0 ? linear.error / linear.power : 0.0}});
  }
  metadata["report"] = json_text(reports);
  SafetensorsWriter writer(part_path(part), std::move(plans), metadata);
  for (const TensorPlan& plan : writer.tensors()) writer.write(bytes.at(plan.name));
  writer.commit();
}

SafetensorsFile JobFolder::open_part(std::size_t part) const {
  return SafetensorsFile(part_path(part));
}

std::map<std::string, std::vector<std::uint16_t>> part_rows(const SafetensorsFile& part) {
  std::map<std::string, std::vector<std::uint16_t>> rows;
  const auto tag = part.metadata().find("format");
  const std::string format = tag == part.metadata().end() ? std::string() : tag->second;
  for (const LinearReport& linear : part_reports(part)) {
    const WeightMatrix matrix = load_packed(part, linear.key, format);
    const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
    const std::int64_t in = in_features(matrix), out = out_features(matrix);
    std::vector<std::uint16_t>& to = rows[linear.key];
    to.resize(halves.size());
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t c = 0; c < out; ++c) {
        to[static_cast<std::size_t>(c * in + i)] = halves[static_cast<std::size_t>(i * out + c)];
      }
    }
  }
  return rows;
}

std::vector<LinearReport> part_reports(const SafetensorsFile& part) {
  std::vector<LinearReport> reports;
  const auto report = part.metadata().find("report");
  if (report == part.metadata().end()) {
    fail(ErrorCode::kInvalidFile, "{} is not a part of a conversion", part.what());
  }
  for (const Json& entry : parse_json(report->second, part.what())) {
    reports.push_back({entry.at("key").get<std::string>(), entry.at("bits").get<double>(),
                       entry.at("error").get<double>(), 0.0});
  }
  return reports;
}

}  // namespace bl
