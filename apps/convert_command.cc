// convert: makes an EXL2 or GPTQ model from a plain one.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "backend/registry.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pending_folder.h"
#include "base/terminal.h"
#include "chat_frame.h"
#include "command.h"
#include "companion_files.h"
#include "convert/converter.h"
#include "convert/rate_choice.h"
#include "convert_options.h"
#include "convert_plan.h"
#include "convert_rates.h"
#include "convert_results.h"
#include "engine/open_model.h"
#include "gptq_conversion.h"
#include "phase_progress.h"
#include "scratch_folder.h"
#include "self_calibration.h"
#include "usage_error.h"
#include "written_models.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// FILE or FILE:WEIGHT.
CalibrationFile parse_calibration_file(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || fs::exists(text)) return {text, 1.0};
  CalibrationFile file{text.substr(0, colon), 0.0};
  try {
    parse_value(std::string_view(text).substr(colon + 1), file.weight);
  } catch (const Error& error) {
    fail_usage("-c {}: {}", text, error.what());
  }
  if (!(file.weight > 0.0 && file.weight <= 1e6)) {
    fail_usage("-c {}: the weight should be above 0, and 1,000,000 at most", text);
  }
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

// That a file cannot be written should not be noticed after hours.
void check_output_file(const char* flag, const fs::path& file) {
  if (fs::is_directory(file)) {
    fail_usage("{}: {} is a folder; give the name of a file", flag, file.string());
  }
  const fs::path folder = fs::absolute(file).parent_path();
  if (!fs::is_directory(folder)) fail_usage("{}: there is no folder {}", flag, folder.string());
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    fail_usage("{}: the folder {} may not be changed", flag, folder.string());
  }
}

// Nothing: whatever helps.
std::optional<FoldSet> folds_of(const ConvertOptions& options) {
  if (options.fold.empty() || options.fold == "auto") return std::nullopt;
  const std::optional<FoldSet> folds = folds_named(options.fold);
  if (!folds) {
    fail_usage("--fold: '{}' should be auto, none, residual, values or residual,values",
               options.fold);
  }
  return folds;
}

// An option that would do nothing is a mistake.
void check_effects(const ConvertOptions& options) {
  const bool gptq_only = options.asym || options.desc_act || options.natural_order ||
                         options.min_max || options.group_size.has_value();
  if (options.format == "exl2" && gptq_only) {
    fail_usage(
        "--group_size, --asym, --desc_act, --natural_order and --min_max go with --format gptq; "
        "EXL2 chooses groups itself, and always orders inputs by importance");
  }
  if (!options.measurement.empty() && (options.sensitivity_tokens || options.measure_rows)) {
    log_warning("-m: nothing is measured, so that -mr and --sensitivity_tokens have no effect");
  }
  const bool writes = !options.bits.empty() || options.target_size.bytes > 0 ||
                      options.vram.bytes > 0 || options.head_bits || options.force ||
                      options.json || !options.report.empty();
  if (!options.output_measurement.empty() && writes) {
    fail_usage(
        "-om stops after measuring, so that -b, --target-size, --vram, -hb, --force, --json and "
        "--report have no effect");
  }
}

void check_options(const ConvertOptions& options) {
  if (options.in.empty()) fail_usage("-i DIR is missing: the model folder to convert");
  if (options.work.empty()) fail_usage("-o DIR is missing: the working folder of the job");
  const bool only_measures = !options.output_measurement.empty();
  if (options.out.empty() && !only_measures) {
    fail_usage("-cf OUT is missing: the folder of the converted model");
  }
  if (only_measures && !(options.out.empty() && options.measurement.empty())) {
    fail_usage("-om stops after measuring, so it goes with neither -cf nor -m");
  }
  check_range("-r", options.rows, 1, 1 << 24);
  check_range("-l", options.length, 32, 1 << 20);
  if (options.format == "gptq" || options.format == "gptq_v2") {
    check_gptq_options(options);
  } else if (options.format != "exl2") {
    fail_usage("--format: '{}' should be exl2, gptq or gptq_v2", options.format);
  }
  check_range("-mr", options.measure_rows.value_or(1), 1, 1 << 20);
  check_range("--sensitivity_tokens", options.sensitivity_tokens.value_or(32), 32, 1 << 20);
  check_range("--sweeps", options.sweeps, 0, 1000);
  check_range("-hb", options.head_bits.value_or(kDefaultHeadBits), 2, 8);
  check_range("-ss", options.shard_mib, 0, 1 << 30);
  check_range("--threads", options.threads, 0, 1 << 16);
  if (!(options.damping >= 0 && options.damping <= 10)) {
    fail_usage("--damping: {} is not in 0 … 10", options.damping);
  }
  if (!(options.correction >= 0 && options.correction <= 1)) {
    fail_usage("--correction: {} is not in 0 … 1", options.correction);
  }
  check_effects(options);
  (void)folds_of(options);
  if (!options.report.empty()) check_output_file("--report", options.report);
  if (only_measures) check_output_file("-om", options.output_measurement);
}

Calibration calibrate(const ConvertOptions& options, const OpenedModel& model,
                      const Backend& backend) {
  if (options.calibration.empty()) {
    return calibrate_from_itself(
        {.model = model,
         .source = identity_of(model),
         .archs = options.archs,
         .device = std::string(backend.name()),
         .device_memory = backend.reads_host_memory() ? 0 : options.device_memory.bytes,
         .threads = options.threads,
         .rows = options.rows,
         .length = options.length,
         .seed = options.seed,
         .work = options.work,
         .restart = options.no_resume});
  }
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(model);
  const ModelText text(tokenizer, options.in);
  CalibrationArgs args{.tokenizer = *tokenizer,
                       .files = {},
                       .rows = options.rows,
                       .length = options.length,
                       .seed = options.seed};
  for (const std::string& file : options.calibration) {
    args.files.push_back(parse_calibration_file(file));
  }
  if (text.has_chat_template()) {
    args.render = [&](const OrderedJson& messages) { return render_conversation(text, messages); };
  }
  return read_calibration(args);
}

void print_calibration(const ConvertOptions& options, const Calibration& calibration) {
  log_info("calibration: {} rows, {} tokens (seed {}); held out: {} rows, {} tokens",
           calibration.rows.size(), calibration.tokens(), options.seed, calibration.held_out.size(),
           calibration.held_out_tokens());
  for (const std::string& source : calibration.sources) log_info("  {}", source);
}

// The folder of the model of one rate: OUT itself where there is no other.
fs::path result_folder(const ConvertOptions& options, std::size_t rates, double bits) {
  const fs::path out = normalized_folder(options.out);
  return rates == 1 ? out : fs::path(out.string() + "-" + rate_name(bits));
}

// Throws where OUT and the working folder are one, or one is in the other.
void check_apart(const ConvertOptions& options, const fs::path& result) {
  const fs::path work = fs::weakly_canonical(normalized_folder(options.work));
  const fs::path out = fs::weakly_canonical(result);
  const auto [end, unused] = std::mismatch(work.begin(), work.end(), out.begin(), out.end());
  if (end != work.end() && unused != out.end()) return;
  fail_usage("-cf {}: the converted model cannot be in the working folder ({}), nor around it",
             options.out, options.work);
}

// Makes the models of all rates, and says what became of them.
class ConvertRun {
 public:
  ConvertRun(const ConvertOptions& options, const OpenedModel& model, const ConvertArgs& args)
      : options_(options), model_(model), args_(args), converter_(args) {}

  void run(std::vector<double> rates) {
    const bool only_measures = !options_.output_measurement.empty();
    if (only_measures) rates.clear();
    const std::optional<SizeLimit> limit = check(rates);
    plan_conversion(options_, converter_, args_.job.calibration, planned(rates, limit));
    const std::string folds = to_text(converter_.folds());
    if (!folds.empty()) log_info("{}", folds);
    converter_.measure();
    if (only_measures) return write_measurement();
    if (limit) {
      rates.push_back(largest_rate(converter_.rates(), *limit,
                                   [&](double rate) { return converter_.matrices(rate); }));
      check_result(rates[0], 1);
    }
    for (const double bits : rates) converter_.plan(bits);  // all can be reached
    ConvertResults results(options_);
    for (const double bits : rates) {
      const fs::path result = result_folder(options_, rates.size(), bits);
      results.add(make(bits, result), result);
    }
    results.finish();
  }

  // Throws where the rates, or a limit in place of them, cannot be reached. Returns the limit.
  std::optional<SizeLimit> check(const std::vector<double>& rates) const {
    check_rates(rates);
    if (!rates.empty() || !options_.output_measurement.empty()) return std::nullopt;
    SizeLimit limit = limit_of(options_, args_, converter_);
    check_limit(converter_.linears(), limit);
    return limit;
  }

  // Throws where the model of a rate may not be written.
  static void check_result(const ConvertOptions& options, const fs::path& result, double bits) {
    check_apart(options, result);
    if (is_written(options, result, bits)) return;
    const std::vector<fs::path> sources{options.in, options.work};
    check_new_folder(result, options.force, sources);
  }

 private:
  void write_measurement() const {
    write_file_atomically(options_.output_measurement,
                          json_text(converter_.measurement_json()) + "\n");
    log_info("measurement: {}", options_.output_measurement);
  }

  void check_result(double bits, std::size_t rates) const {
    check_result(options_, result_folder(options_, rates, bits), bits);
  }

  void check_rates(const std::vector<double>& rates) const {
    const RateRange range = converter_.rates();
    for (const double bits : rates) {
      if (bits >= range.least) continue;
      fail(ErrorCode::kInvalidArgument,
           "{} bits per weight cannot be reached: this model takes {:.3f} to {:.3f}", bits,
           range.least, range.most);
    }
  }

  std::vector<PlannedRate> planned(const std::vector<double>& rates,
                                   const std::optional<SizeLimit>& limit) const {
    const std::span<const PlannedMatrix> linears = converter_.linears();
    const RateRange range = reachable_rates(linears);
    const std::uint64_t least =
        file_bytes_of(options_, args_, converter_, cheapest_matrices(linears));
    const auto bytes_of = [&](double bits) {
      return least + bytes_at(linears, std::min(bits, range.most)) - bytes_at(linears, range.least);
    };
    if (limit) {
      const std::uint64_t bytes = std::min(limit->bytes, bytes_of(range.most));
      return {{std::nullopt, bytes, normalized_folder(options_.out)}};
    }
    std::vector<PlannedRate> planned;
    for (const double bits : rates) {
      planned.push_back({bits, bytes_of(bits), result_folder(options_, rates.size(), bits)});
    }
    return planned;
  }

  ConvertReport make(double bits, const fs::path& result) {
    const BitPlan& plan = converter_.plan(bits);
    const std::uint64_t bytes =
        file_bytes_of(options_, args_, converter_, converter_.matrices(bits));
    std::string prediction;
    if (std::isfinite(plan.predicted_kl)) {
      prediction = fmt::format(", predicted KL divergence {:.4f}", plan.predicted_kl);
    }
    log_info("{}: {:.4f} bits per weight, {}{}", rate_name(bits), plan.bits_per_weight,
             human_bytes(static_cast<double>(bytes)), prediction);
    converter_.quantize(bits);
    if (is_written(options_, result, bits)) return converter_.report(bits, bytes);
    PendingFolder pending(result, options_.force);
    const ConvertReport report = converter_.write(bits, pending.path(), shard_bytes_of(options_));
    write_companions(model_, pending.path());
    put_result_in_place(options_, pending, result, bits);
    return report;
  }

  const ConvertOptions& options_;
  const OpenedModel& model_;
  const ConvertArgs& args_;
  Converter converter_;
};

// A conversion takes and frees matrices of megabytes all the time, which the allocator would give
// back to the system, to be cleared page by page when they are taken again: 5 % of the time.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// The arguments must outlive the result.
ConversionJob job_of(const ConvertOptions& options, const OpenedModel& model, Backend& backend,
                     const Calibration& calibration) {
  return {.backend = backend,
          .files = model.files,
          .archs = options.archs,
          .calibration = calibration,
          .device_memory = options.device_memory.bytes,
          .work = options.work,
          .restart = options.no_resume,
          .quantize = {.damping = options.damping,
                       .sweeps = static_cast<int>(options.sweeps),
                       .correction = options.correction},
          .source = identity_of(model)};
}

ConvertArgs convert_args_of(const ConvertOptions& options, const ConversionJob& job) {
  return {
      .job = job,
      .measurement = options.measurement,
      .head_bits = static_cast<int>(options.head_bits.value_or(kDefaultHeadBits)),
      .measure_rows = std::min(options.measure_rows.value_or(kDefaultMeasureRows), options.rows),
      .sensitivity_tokens = options.sensitivity_tokens.value_or(0),
      .folds = folds_of(options)};
}

// Throws what a conversion of this model would throw before it computes anything. The model may
// take an hour to write its calibration, which should not be in vain.
void rehearse(const ConvertOptions& options, const OpenedModel& model, Backend& backend,
              const std::vector<double>& rates) {
  Calibration calibration;
  calibration.rows.emplace_back(static_cast<std::size_t>(options.length));
  calibration.held_out = calibration.rows;
  const ScratchFolder work;
  ConversionJob job = job_of(options, model, backend, calibration);
  job.work = work.path();
  job.rehearsed = true;
  if (options.format != "exl2") return rehearse_gptq({options, model, job, {}});
  const ConvertArgs args = convert_args_of(options, job);
  (void)ConvertRun(options, model, args).check(rates);
}

void convert(ConvertOptions& options) {
  check_options(options);
  keep_freed_memory();
  const std::vector<double> rates = listed_rates(options);
  for (const double bits : options.out.empty() ? std::vector<double>{} : rates) {
    ConvertRun::check_result(options, result_folder(options, rates.size(), bits), bits);
  }
  const OpenedModel model = open_model(options.in, options.archs);
  if (!model.note.empty()) log_info("{}", model.note);
  const std::unique_ptr<Backend> backend =
      open_backend(options.backend, {.threads = static_cast<int>(options.threads)});
  log_info("device: {} ({})", backend->name(), backend->description());
  if (options.calibration.empty()) {
    rehearse(options, model, *backend, options.out.empty() ? std::vector<double>{} : rates);
  }
  const Calibration calibration = calibrate(options, model, *backend);
  print_calibration(options, calibration);
  PhaseProgress progress;
  ConversionJob job = job_of(options, model, *backend, calibration);
  job.progress = std::ref(progress);
  if (options.format != "exl2") {
    return convert_to_gptq({options, model, job, normalized_folder(options.out)});
  }
  const ConvertArgs args = convert_args_of(options, job);
  ConvertRun(options, model, args).run(rates);
}

// The reference's option names of several letters after one dash, as their long forms.
std::vector<std::string> with_long_names(std::span<const std::string> words) {
  static const std::map<std::string, std::string> kLong{
      {"-cf", "--compile_full"}, {"-hb", "--head_bits"}, {"-mr", "--measurement_rows"},
      {"-ss", "--shard_size"},   {"-nr", "--no_resume"}, {"-om", "--output_measurement"},
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
       "-i DIR -o WORK -cf OUT [-c TEXT] [-b BITS[,BITS…] | --target-size SIZE | --vram SIZE]",
       "Convert a plain model to EXL2 at any average number of bits, or to GPTQ",
       {{"Convert to 4 bits per weight, calibrated with what the model itself writes",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 4.0"},
        {"Calibrate with texts: three rows of chats for each row of other text",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 4.0 -c chats.jsonl:3 -c text.txt"},
        {"Go on after an interruption: the same command again",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 4.0"},
        {"Three models from one measurement: DIR-exl2-3.0bpw, DIR-exl2-4.0bpw, DIR-exl2-5.0bpw",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 -b 3.0,4.0,5.0"},
        {"The best model that runs with 8192 tokens of context on a card of 24 GiB",
         "bitloom convert -i DIR -o WORK -cf DIR-exl2 --vram 24GiB --ctx 8192"},
        {"Convert to GPTQ with 4 bits and groups of 128",
         "bitloom convert -i DIR -o WORK -cf DIR-gptq --format gptq -b 4"}}},
      convert);
  command.execute = [execute = command.execute](std::span<const std::string> words) {
    execute(with_long_names(words));
  };
  return command;
}

}  // namespace bl
