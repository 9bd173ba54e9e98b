#include "convert/job_folder.h"

#include "base/error.h"
#include "base/file.h"
#include "format/dequantize.h"
#include "format/exl2.h"
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

struct Piece {
  TensorPlan plan;
  std::span<const std::byte> bytes;
};

void add_pieces(const std::string& key, const Exl2Tensors& tensors, std::int64_t out,
                std::vector<Piece>& pieces) {
  const auto groups = std::ssize(tensors.q_scale_max);
  const auto add = [&](const char* name, DType dtype, const Shape& shape, const auto& values) {
    pieces.push_back({plan_tensor(key + name, dtype, shape), std::as_bytes(std::span(values))});
  };
  add(".q_weight", DType::kI32, {std::ssize(tensors.q_weight) / out, out}, tensors.q_weight);
  add(".q_groups", DType::kI16, {2 * groups}, tensors.q_groups);
  add(".q_scale", DType::kI32, {groups, out / 8}, tensors.q_scale);
  add(".q_scale_max", DType::kF16, {groups}, tensors.q_scale_max);
  add(".q_invperm", DType::kI32, {std::ssize(tensors.q_invperm)}, tensors.q_invperm);
}

}  // namespace

void check_job_folder(const fs::path& folder) {
  if (!fs::exists(folder) || fs::exists(folder / "job.json")) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == "calibration.json") continue;
    fail(ErrorCode::kInvalidArgument, "{} is not empty and holds no conversion; give a new folder",
         folder.string());
  }
}

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
    check_job_folder(folder_);
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
  std::vector<Exl2Tensors> tensors;
  for (const QuantizedLinear& linear : linears) tensors.push_back(pack_exl2(linear.matrix));
  std::map<std::string, std::span<const std::byte>> bytes;
  std::vector<TensorPlan> plans;
  Json reports = Json::array();
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const QuantizedLinear& linear = linears[i];
    std::vector<Piece> pieces;
    add_pieces(linear.key, tensors[i], linear.matrix.out, pieces);
    for (Piece& piece : pieces) {
      bytes[piece.plan.name] = piece.bytes;
      plans.push_back(std::move(piece.plan));
    }
    const auto weights = static_cast<double>(linear.matrix.in * linear.matrix.out);
    const std::int64_t bits =
        stored_bits(linear.matrix.groups, linear.matrix.in, linear.matrix.out);
    reports.push_back({{"key", linear.key},
                       {"bits", static_cast<double>(bits) / weights},
                       {"error", linear.power > 0 ? linear.error / linear.power : 0.0}});
  }
  SafetensorsWriter writer(part_path(part), std::move(plans), {{"report", json_text(reports)}});
  for (const TensorPlan& plan : writer.tensors()) writer.write(bytes.at(plan.name));
  writer.commit();
}

SafetensorsFile JobFolder::open_part(std::size_t part) const {
  return SafetensorsFile(part_path(part));
}

std::map<std::string, std::vector<std::uint16_t>> part_rows(const SafetensorsFile& part) {
  std::map<std::string, std::vector<std::uint16_t>> rows;
  for (const LinearReport& linear : part_reports(part)) {
    const Exl2Matrix matrix = load_exl2_matrix(part, linear.key);
    const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
    std::vector<std::uint16_t>& to = rows[linear.key];
    to.resize(halves.size());
    for (std::int64_t i = 0; i < matrix.in; ++i) {
      for (std::int64_t c = 0; c < matrix.out; ++c) {
        to[static_cast<std::size_t>(c * matrix.in + i)] =
            halves[static_cast<std::size_t>(i * matrix.out + c)];
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
