// convert: makes an EXL2 or GPTQ model from a plain one.

#include <algorithm>
#include <map>
#include <memory>

#include "backend/registry.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pending_folder.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "companion_files.h"
#include "convert/converter.h"
#include "convert_options.h"
#include "engine/open_model.h"
#include "format/safetensors_folder.h"
#include "gptq_conversion.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// FILE or FILE:WEIGHT.
CalibrationFile parse_calibration_file(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || fs::exists(text)) return {text, 1.0};
  CalibrationFile file{text.substr(0, colon), 0.0};
  parse_value(std::string_view(text).substr(colon + 1), file.weight);
  if (!(file.weight > 0.0)) fail_usage("-c {}: the weight should be above 0", text);
  return file;
}

// Names, sizes and times of the weight files, so that a resumed job notices another model.
std::string identity_of(const OpenedModel& model) {
  std::string text = json_text(model.files.config);
  const auto add = [&](const fs::path& file) {
    text += fmt::format("|{} {} {}", file.filename().string(), fs::file_size(file),
                        fs::last_write_time(file).time_since_epoch().count());
  };
  if (fs::is_regular_file(model.path)) {
    add(model.path);
    return text;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(model.path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(file);
  return text;
}

void check_options(const ConvertOptions& options) {
  if (options.in.empty()) fail_usage("-i DIR is missing: the model folder to convert");
  if (options.work.empty()) fail_usage("-o DIR is missing: the working folder of the job");
  if (options.out.empty()) fail_usage("-cf OUT is missing: the folder of the converted model");
  if (options.calibration.empty()) {
    fail_usage("-c FILE is missing: text to calibrate with (plain text or JSON lines)");
  }
  if (!(options.bits >= 2.0 && options.bits <= 8.0)) {
    fail_usage("-b: {} is not in 2 … 8", options.bits);
  }
  if (options.rows < 1 || options.length < 32) {
    fail_usage("-r and -l: calibration takes 1 row or more of 32 tokens or more");
  }
  if (options.format == "gptq" || options.format == "gptq_v2") {
    check_gptq_options(options);
  } else if (options.format != "exl2") {
    fail_usage("--format: '{}' should be exl2, gptq or gptq_v2", options.format);
  }
  if (options.measure_rows < 1) fail_usage("-mr: {} should be 1 or more", options.measure_rows);
}

Calibration calibrate(const ConvertOptions& options, const OpenedModel& model) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model);
  CalibrationArgs args{.tokenizer = *tokenizer,
                       .files = {},
                       .rows = options.rows,
                       .length = options.length,
                       .seed = options.seed};
  for (const std::string& file : options.calibration) {
    args.files.push_back(parse_calibration_file(file));
  }
  return read_calibration(args);
}

void print_plan(const ConvertOptions& options, const Calibration& calibration) {
  log_info("calibration: {} rows, {} tokens (seed {})", calibration.rows.size(),
           calibration.tokens(), options.seed);
  for (const std::string& source : calibration.sources) log_info("  {}", source);
}

void print_report(const ConvertOptions& options, const ConvertReport& report) {
  if (options.json) return write_json(to_json(report));
  std::string text =
      fmt::format("{:<44} {:>7} {:>12} {:>12}\n", "linear", "bits", "rel. error", "KL share");
  for (const LinearReport& linear : report.linears) {
    text += fmt::format("{:<44} {:>7.3f} {:>12.3e} {:>12.3e}\n", linear.key, linear.bits,
                        linear.relative_error, linear.predicted_kl);
  }
  text += fmt::format(
      "{:.4f} bits per weight, {} in {}; predicted KL divergence {:.4f} (no plan within these bits "
      "is below {:.4f})\n",
      report.bits_per_weight, human_bytes(static_cast<double>(report.bytes)), options.out,
      report.predicted_kl, report.bound);
  write_result(text);
}

// A bar for each phase.
class PhaseProgress {
 public:
  void operator()(const char* phase, std::int64_t done, std::int64_t total) {
    check_interrupt();
    if (phase != phase_) {
      bar_.reset();
      bar_ = std::make_unique<Progress>(phase, total, Progress::Unit::kItems);
      phase_ = phase;
    }
    bar_->update(done);
  }

 private:
  std::string phase_;
  std::unique_ptr<Progress> bar_;
};

void convert(ConvertOptions& options) {
  check_options(options);
  const fs::path target = normalized_folder(options.out);
  const std::vector<fs::path> sources{options.in, options.work};
  check_new_folder(target, options.force, sources);
  const OpenedModel model = open_model(options.in, options.archs);
  if (!model.note.empty()) log_info("{}", model.note);
  const Calibration calibration = calibrate(options, model);
  print_plan(options, calibration);
  const std::unique_ptr<Backend> backend =
      open_backend("cpu", {.threads = static_cast<int>(options.threads)});
  PhaseProgress progress;
  if (options.format != "exl2") {
    return convert_to_gptq(
        {options, model, calibration, *backend, target, identity_of(model), std::ref(progress)});
  }
  ConvertArgs args{.backend = *backend,
                   .files = model.files,
                   .archs = options.archs,
                   .calibration = calibration,
                   .work = options.work,
                   .restart = options.no_resume,
                   .bits = options.bits,
                   .head_bits = static_cast<int>(options.head_bits),
                   .measure_rows = std::min(options.measure_rows, options.rows),
                   .quantize = {.damping = options.damping,
                                .sweeps = static_cast<int>(options.sweeps),
                                .correction = options.correction},
                   .source = identity_of(model),
                   .progress = std::ref(progress)};
  Converter converter(args);
  converter.measure();
  const BitPlan& plan = converter.plan();
  log_info("plan: {:.4f} bits per weight, predicted KL divergence {:.4f}", plan.bits_per_weight,
           plan.predicted_kl);
  converter.quantize();
  PendingFolder pending(target);
  const std::uint64_t shard =
      options.shard_mib > 0 ? static_cast<std::uint64_t>(options.shard_mib) << 20 : UINT64_MAX;
  const ConvertReport report = converter.write(pending.path(), shard);
  write_companions(model, pending.path());
  pending.put_in_place();
  print_report(options, report);
}

// The reference's option names of several letters after one dash, as their long forms.
std::vector<std::string> with_long_names(std::span<const std::string> words) {
  static const std::map<std::string, std::string> kLong{
      {"-cf", "--compile_full"}, {"-hb", "--head_bits"}, {"-mr", "--measurement_rows"},
      {"-ss", "--shard_size"},   {"-nr", "--no_resume"},
  };
  std::vector<std::string> result;
  for (const std::string& word : words) {
    const auto known = kLong.find(word);
    result.push_back(known != kLong.end() ? known->second : word);
  }
  return result;
}

}  // namespace

Command convert_command() {
  Command command = make_command<ConvertOptions>(
      {"convert",
       "-i DIR -o WORK -cf OUT -c TEXT [-b BITS]",
       "Convert a plain model to EXL2 at any average number of bits, or to GPTQ",
       {{"Convert to 4 bits per weight, calibrated with a text",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 4.0 -c text.txt"},
        {"Go on after an interruption: the same command again",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 4.0 -c text.txt"},
        {"Convert to GPTQ with 4 bits and groups of 128",
         "bitloom convert -i DIR -o WORK -cf DIR-gptq --format gptq -b 4 -c text.txt"}}},
      convert);
  command.execute = [execute = command.execute](std::span<const std::string> words) {
    execute(with_long_names(words));
  };
  return command;
}

}  // namespace bl
