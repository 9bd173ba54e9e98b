#include "self_calibration.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sip_hash.h"
#include "calibration_rows.h"
#include "convert/eight_bit_model.h"
#include "convert/job_folder.h"
#include "engine/host_memory.h"
#include "model/model_loader.h"
#include "model_options.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// Rows that are written at once, so that a step reads the weights once for all of them; products of
// the CPU take as many rows together. The rows of the defaults, 66, are fewer: a second batch of
// two would take as many steps again.
constexpr std::int64_t kMostSequences = 96;

// How many of `rows` are written at once: as many in each batch.
std::int64_t sequences_for(std::int64_t rows) {
  const std::int64_t batches = (rows + kMostSequences - 1) / kMostSequences;
  return (rows + batches - 1) / batches;
}

// What the rows depend on.
Json describe(const SelfCalibration& asked) {
  SipHash model;
  model.update(asked.source);
  return {{"version", 3},
          {"model", model.finish().hex()},
          {"rows", asked.rows},
          {"length", asked.length},
          {"seed", asked.seed}};
}

// How many rows of `length` tokens have as many tokens as were asked for, without those held out.
std::int64_t fitted_rows(const SelfCalibration& asked, std::int64_t length) {
  return (asked.rows * asked.length + length - 1) / length;
}

// All rows that are generated; those that are held out are the first.
std::int64_t rows_for(const SelfCalibration& asked, std::int64_t length) {
  const std::int64_t fitted = fitted_rows(asked, length);
  return fitted + held_out_beside(fitted);
}

fs::path kept_path(const SelfCalibration& asked) { return asked.work / "calibration.json"; }

[[noreturn]] void fail_damaged(const fs::path& path) {
  fail(ErrorCode::kInvalidFile,
       "{} is damaged; remove it, so that the rows of calibration are generated again",
       path.string());
}

// A row of tokens, or an empty one that has not been written yet.
std::vector<std::int32_t> kept_row(const Json& ids, std::int64_t vocab, const fs::path& path) {
  std::vector<std::int32_t> row;
  if (!ids.is_array()) fail_damaged(path);
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) fail_damaged(path);
    row.push_back(id.get<std::int32_t>());
  }
  return row;
}

GeneratedRows rows_of(const Json& kept, const SelfCalibration& asked) {
  const fs::path path = kept_path(asked);
  if (!kept.contains("conversations") || !kept["conversations"].is_number_integer() ||
      !kept.contains("rows") || !kept["rows"].is_array()) {
    fail_damaged(path);
  }
  const std::int64_t vocab = load_tokenizer(asked.model)->vocab_size();
  GeneratedRows generated;
  generated.conversations = kept["conversations"].get<std::int64_t>();
  std::size_t length = 0;
  for (const Json& ids : kept["rows"]) {
    const auto& row = generated.rows.emplace_back(kept_row(ids, vocab, path));
    if (length != 0 && !row.empty() && row.size() != length) fail_damaged(path);
    length = std::max(length, row.size());
  }
  const std::int64_t rows = std::ssize(generated.rows);
  if (length == 0 || rows != rows_for(asked, static_cast<std::int64_t>(length)) ||
      generated.conversations < 0 || generated.conversations > rows) {
    fail_damaged(path);
  }
  return generated;
}

// The rows of an earlier run, of which some may be missing; no row where all have to be made.
GeneratedRows read_kept(const SelfCalibration& asked) {
  const fs::path path = kept_path(asked);
  const bool has_job = fs::exists(asked.work / "job.json") && !asked.restart;
  if (!fs::exists(path)) {
    if (!has_job) return {};
    fail(ErrorCode::kInvalidArgument,
         "{} holds a conversion that was calibrated with files; give them with -c as before, or "
         "use another folder",
         asked.work.string());
  }
  const Json kept = read_json_file(path, std::uint64_t{1} << 30);
  if (!kept.is_object() || !kept.contains("made_of")) fail_damaged(path);
  if (kept["made_of"] == describe(asked)) return rows_of(kept, asked);
  if (!has_job) return {};
  fail(ErrorCode::kInvalidArgument,
       "{} holds a conversion whose calibration was generated with another model, -r, -l or "
       "--seed; use another folder, or --no_resume to start again in this one",
       asked.work.string());
}

bool is_complete(const GeneratedRows& generated) {
  const auto& rows = generated.rows;
  return !rows.empty() &&
         std::none_of(rows.begin(), rows.end(), [](const auto& row) { return row.empty(); });
}

void keep(const SelfCalibration& asked, const GeneratedRows& generated) {
  std::error_code error;
  fs::create_directories(asked.work, error);
  if (error) fail(ErrorCode::kIo, "cannot create {}: {}", asked.work.string(), error.message());
  const Json kept = {{"made_of", describe(asked)},
                     {"conversations", generated.conversations},
                     {"rows", generated.rows}};
  write_file_atomically(kept_path(asked), json_text(kept) + "\n");
}

// The model that writes. On the CPU it is a copy with 8 bits, which takes a third of the time less,
// unless memory is so short that the copy and what a session makes of it would fill half of it.
std::shared_ptr<const OpenedModel> writing_model(const SelfCalibration& asked) {
  auto model = std::make_shared<OpenedModel>(asked.model);
  if (asked.device != "cpu") return model;
  std::uint64_t weights = 0;
  for (const std::string& name : asked.model.files.source->names()) {
    const TensorInfo* info = asked.model.files.source->find(name);
    weights += static_cast<std::uint64_t>(info->shape.elements());
  }
  if (2 * weights > available_host_memory() / 2) return model;
  const std::unique_ptr<Backend> backend =
      open_backend("cpu", {.threads = static_cast<int>(asked.threads)});
  model->files = eight_bit_model(*backend, asked.model.files, asked.archs);
  return model;
}

// Loads the model for this many rows of `length` tokens: for as many at once as memory has room
// for.
std::unique_ptr<ModelSession> load(const SelfCalibration& asked, std::int64_t rows,
                                   std::int64_t length) {
  SessionOptions options;
  options.opened = writing_model(asked);
  options.backend = asked.device;
  options.memory = asked.device_memory;
  options.threads = static_cast<int>(asked.threads);
  options.archs = asked.archs;
  options.longest = length;
  // On a host, rows do not depend on how many are written at once, or on an interruption. A card
  // would take many times as long for that.
  options.deterministic = asked.device == "cpu";
  for (options.sequences = sequences_for(rows);; options.sequences /= 2) {
    try {
      return load_session(options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      if (options.sequences > 1) continue;
      fail(error.code(), "{}; or give texts to calibrate with (-c), which needs less memory",
           error.what());
    }
  }
}

std::int64_t context_of(const SelfCalibration& asked) {
  const std::unique_ptr<Backend> backend =
      open_backend("cpu", {.threads = static_cast<int>(asked.threads)});
  LoadOptions options;
  options.archs = asked.archs;
  return ModelLoader(*backend, asked.model.files, options).spec().context;
}

GeneratedRows generate(const SelfCalibration& asked, GeneratedRows kept) {
  RowsToGenerate rows{.rows = asked.rows, .length = asked.length, .seed = asked.seed};
  rows.length = std::min(asked.length, context_of(asked));
  rows.rows = rows_for(asked, rows.length);
  rows.done = std::move(kept.rows);
  rows.on_rows = [&](const GeneratedRows& written) { keep(asked, written); };
  log_info("no -c is given: the model writes {} rows of {} tokens to calibrate with, {} held out",
           rows.rows, rows.length, rows.rows - fitted_rows(asked, rows.length));
  Engine engine(load(asked, rows.rows, rows.length));
  return generate_rows(engine, rows);
}

}  // namespace

Calibration calibrate_from_itself(const SelfCalibration& asked) {
  check_job_folder(asked.work);
  GeneratedRows generated = read_kept(asked);
  if (!is_complete(generated)) generated = generate(asked, std::move(generated));
  const std::int64_t conversations = generated.conversations;
  Calibration calibration;
  calibration.dataset = kGeneratedDataset;
  calibration.sources.push_back(
      fmt::format("generated by the model: {} rows of texts and {} of conversations",
                  std::ssize(generated.rows) - conversations, conversations));
  const auto fitted = fitted_rows(asked, std::ssize(generated.rows.front()));
  const auto first_fitted = generated.rows.end() - static_cast<std::ptrdiff_t>(fitted);
  calibration.held_out.assign(generated.rows.begin(), first_fitted);
  calibration.rows.assign(first_fitted, generated.rows.end());
  return calibration;
}

}  // namespace bl
