// bench convert: how long a conversion to EXL2 takes here, phase by phase, without files.

#include <filesystem>
#include <memory>
#include <random>

#include "backend/registry.h"
#include "base/json.h"
#include "base/seconds_since.h"
#include "base/terminal.h"
#include "command.h"
#include "convert/converter.h"
#include "convert/job_folder.h"
#include "convert_options.h"
#include "convert_rates.h"
#include "engine/open_model.h"
#include "model_flags.h"
#include "phase_progress.h"
#include "random_model.h"
#include "results.h"
#include "scratch_folder.h"
#include "usage_error.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct BenchConvertOptions {
  std::string model;
  std::string random;
  std::int64_t layers = 0;
  std::string bits = "4.0";
  std::int64_t head_bits = kDefaultHeadBits;
  std::int64_t rows = 64;
  std::int64_t measure_rows = kDefaultMeasureRows;
  std::int64_t length = 1024;
  std::string work;
  std::string backend = "auto";
  ByteSize device_memory;
  std::int64_t threads = 0;
  std::string archs;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v.group("Model");
    v(model, {"-m,--model", "DIR", "plain model folder or .gguf file"});
    v(random, {"--random", "SHAPE",
               "instead of -m: make up the weights of a model, the path of a Hugging Face "
               "config.json or a name in archs/bench/shapes.json, such as llama3-8b"});
    v(layers, {"--layers", "N", "--random: only the first N layers of the model", "all"});
    v.group("Conversion");
    v(bits, {"-b,--bits", "BITS[,BITS…]", "average bits per weight of the blocks"});
    v(head_bits, {"--head_bits", "N", "width of the head"});
    v(rows, {"-r,--rows", "N", "rows of calibration, of random tokens"});
    v(measure_rows, {"--measurement_rows", "N", "how many of them measuring takes"});
    v(length, {"-l,--length", "N", "tokens per row"});
    v(work, {"--work", "DIR", "existing folder in which the job's folder is made and removed",
             "the system's temporary folder"});
    v.group("Machine");
    v(backend, {"--backend", "NAME", "where to compute: auto, cpu, ref or cuda[:N]"});
    v(device_memory,
      {"--device-memory", "SIZE",
       "memory of a card to use at most, such as 20GiB (no effect on a CPU)", "what is free"});
    v(threads, {"--threads", "N", "CPU threads", "physical cores"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
    v.group("Result");
    v(json, {"--json", "", "print JSON instead of a table"});
  }
};

void check(const BenchConvertOptions& options) {
  if (options.model.empty() == options.random.empty()) {
    fail_usage("give a model: either -m DIR or --random SHAPE");
  }
  if (options.layers != 0 && options.random.empty()) {
    fail_usage("--layers goes with --random SHAPE");
  }
  if (options.rows < 1 || options.length < 32 || options.measure_rows < 1) {
    fail_usage("-r and --measurement_rows should be 1 or more, -l 32 or more");
  }
  check_backend_flag("--backend", options.backend);
  if (!options.work.empty() && !fs::is_directory(options.work)) {
    fail_usage("--work: there is no folder {}", options.work);
  }
}

std::shared_ptr<const OpenedModel> open(const BenchConvertOptions& options) {
  if (options.random.empty()) {
    return std::make_shared<const OpenedModel>(open_model(options.model, options.archs));
  }
  RandomModelRequest request;
  request.shape = options.random;
  request.format = "fp16";
  request.layers = options.layers;
  request.archs = options.archs;
  request.level = true;  // hidden states stay within reason from block to block
  return open_random_model(request).opened;
}

Calibration random_calibration(const BenchConvertOptions& options, std::int64_t vocab) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(vocab) - 1);
  const auto rows = [&](std::int64_t count) {
    std::vector<std::vector<std::int32_t>> made(static_cast<std::size_t>(count));
    for (auto& row : made) {
      row.resize(static_cast<std::size_t>(options.length));
      for (std::int32_t& token : row) token = id(random);
    }
    return made;
  };
  Calibration calibration;
  calibration.rows = rows(options.rows);
  calibration.held_out = rows(held_out_beside(options.rows));
  calibration.dataset = "random";
  return calibration;
}

Json run(const BenchConvertOptions& options, const std::vector<double>& rates) {
  const std::shared_ptr<const OpenedModel> model = open(options);
  const std::unique_ptr<Backend> backend =
      open_backend(options.backend, {.threads = static_cast<int>(options.threads)});
  LoadOptions load;
  load.archs = options.archs;
  const Calibration calibration =
      random_calibration(options, ModelLoader(*backend, model->files, load).spec().vocab);
  const ScratchFolder work(options.work);
  PhaseProgress progress;
  const ConvertArgs args{.job = {.backend = *backend,
                                 .files = model->files,
                                 .archs = options.archs,
                                 .calibration = calibration,
                                 .device_memory = options.device_memory.bytes,
                                 .work = work.path(),
                                 .source = "bench",
                                 .progress = std::ref(progress)},
                         .head_bits = static_cast<int>(options.head_bits),
                         .measure_rows = std::min(options.measure_rows, options.rows)};
  Converter converter(args);
  Json result = {{"backend", backend->description()},
                 {"tokens", calibration.tokens() + calibration.held_out_tokens()},
                 {"linears", converter.linears().size()}};
  Clock::time_point start = Clock::now();
  converter.measure();
  result["measure_seconds"] = seconds_since(start);
  result["rates"] = Json::array();
  for (const double bits : rates) {
    start = Clock::now();
    converter.quantize(bits);
    result["rates"].push_back({{"bits", bits}, {"seconds", seconds_since(start)}});
  }
  result["device_memory_peak"] = backend->memory_use().peak;
  return result;
}

std::string phase_table(const Json& result) {
  std::string text = fmt::format(
      "{}: {} linears, {} tokens of calibration\n\n", result["backend"].get<std::string>(),
      result["linears"].get<std::int64_t>(), result["tokens"].get<std::int64_t>());
  text += fmt::format("| {:<16} | {:>9} |\n| {:-<16} | {:->8}: |\n", "phase", "seconds", "", "");
  const auto row = [&](const std::string& phase, double seconds) {
    text += fmt::format("| {:<16} | {:>9.1f} |\n", phase, seconds);
  };
  row("measure", result["measure_seconds"].get<double>());
  for (const Json& rate : result["rates"]) {
    row("quantize " + rate_name(rate["bits"].get<double>()), rate["seconds"].get<double>());
  }
  const auto peak = result["device_memory_peak"].get<double>();
  if (peak > 0) text += fmt::format("\ndevice memory, at most: {}\n", human_bytes(peak));
  return text;
}

void bench_convert(BenchConvertOptions& options) {
  check(options);
  const std::vector<double> rates = rates_of(options.bits);
  const Json result = run(options, rates);
  if (options.json) {
    write_json(result);
  } else {
    write_result(phase_table(result));
  }
}

}  // namespace

Command bench_convert_command() {
  return make_command<BenchConvertOptions>(
      {"bench convert",
       "(-m DIR | --random SHAPE) [-b BITS[,BITS…]] [-r N] [-l N]",
       "Measure how long a conversion to EXL2 takes, phase by phase",
       {{"Three rates of an 8B model of random weights on a card",
         "bitloom bench convert --random llama3-8b -b 3.0,4.0,5.0 --backend cuda"},
        {"One block of a 70B model on a card of 24 GiB, of which a desktop leaves 23",
         "bitloom bench convert --random llama3-70b --layers 1 --backend cuda --device-memory "
         "23GiB"}}},
      bench_convert);
}

}  // namespace bl
