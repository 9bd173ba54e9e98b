#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model_flags.h"

namespace bl {

// EXL2 takes these where -hb and -mr are not given.
inline constexpr std::int64_t kDefaultHeadBits = 6;
inline constexpr std::int64_t kDefaultMeasureRows = 8;

// The options of `convert`. Names are those of the reference's converter where it has the option.
struct ConvertOptions {
  std::string in;
  std::string work;
  std::string out;
  std::vector<std::string> calibration;
  std::string format = "exl2";
  std::string bits;
  ByteSize target_size;
  ByteSize vram;
  std::int64_t context = 0;
  std::string cache;
  std::optional<std::int64_t> head_bits;   // kDefaultHeadBits
  std::optional<std::int64_t> group_size;  // kDefaultGptqGroup
  bool asym = false;
  bool desc_act = false;
  bool natural_order = false;
  bool min_max = false;
  std::int64_t rows = 64;
  std::optional<std::int64_t> measure_rows;  // kDefaultMeasureRows
  std::optional<std::int64_t> sensitivity_tokens;
  std::int64_t length = 1024;
  std::uint64_t seed = 0;
  double damping = 0.01;
  std::int64_t sweeps = 2;
  double correction = 1.0;
  std::string fold;
  std::int64_t shard_mib = 8192;
  std::string backend = "auto";
  ByteSize device_memory;
  std::int64_t threads = 0;
  std::string archs;
  std::string report;
  std::string measurement;
  std::string output_measurement;
  bool no_resume = false;
  bool force = false;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(in, {"-i,--in_dir", "DIR", "the model folder or .gguf file to convert"});
    v(work, {"-o,--out_dir", "WORK", "working folder; the same one again resumes the job"});
    v(out, {"--compile_full", "OUT",
            "the folder of the converted model; several rates: OUT-3.0bpw and so on; also -cf"});
    v(no_resume, {"--no_resume", "", "discard the unfinished job in WORK; also -nr"});
    v(force, {"--force", "", "replace the model that is already in OUT"});
    v(shard_mib, {"--shard_size", "MIB", "limit of one weight file, 0: none; also -ss"});
    v(json, {"--json", "", "print the report as JSON"});
    v(format, {"--format", "NAME", "exl2, gptq, or gptq_v2 (zero points stored as they are)"});
    v(report, {"--report", "FILE.html", "also write the report as one page with plots"});
    v(measurement, {"-m,--measurement", "FILE",
                    "measurement.json to use in place of measuring, ours or that of ExLlamaV2"});
    v(output_measurement, {"--output_measurement", "FILE",
                           "in place of -cf: stop after measuring and write it here; also -om"});
    v.group("Size and quality");
    v(bits, {"-b,--bits", "BITS[,BITS…]", "average bits per weight of the blocks", "4.125"});
    v(target_size, {"--target-size", "SIZE",
                    "in place of -b: the most bits whose weight files fit, such as 5.2GiB"});
    v(vram, {"--vram", "SIZE", "in place of -b: the most bits that fit a card, with --ctx"});
    v(context, {"--ctx", "N", "tokens of context that --vram leaves room for", "the model's"});
    v(cache, {"--cache", "TYPE", cache_help(), "fp16"});
    v(head_bits, {"--head_bits", "N", "width of the head: 2, 3, 4, 5, 6 or 8; also -hb", "6"});
    v(damping, {"--damping", "X", "added to Hessians, relative to their mean diagonal"});
    v(sweeps, {"--sweeps", "N", "passes that improve codes and scales after rounding"});
    v(correction, {"--correction", "X", "how much of earlier errors is corrected, 0 to 1"});
    v(fold,
      {"--fold", "LIST",
       "rotate weights so that rounding loses less: auto tries what the model allows; none; or "
       "residual, values, both with a comma",
       "auto"});
    v.group("GPTQ, where -b is 2, 3, 4 or 8 and the head stays as it is");
    v(group_size,
      {"--group_size", "N", "inputs that share a scale: 32, 64, 128 …; -1: all", "128"});
    v(asym, {"--asym", "", "zero points are free, not in the middle"});
    v(desc_act, {"--desc_act", "", "groups are made of inputs by importance (g_idx)"});
    v(natural_order,
      {"--natural_order", "", "round inputs as they come, not important ones first"});
    v(min_max, {"--min_max", "", "scales span all weights, without a search; to compare with"});
    v.group("Calibration");
    v(calibration,
      {"-c,--cal_dataset", "FILE[:WEIGHT]", "plain text, .jsonl or .parquet; may be repeated",
       "the model writes rows itself"});
    v(rows, {"-r,--dataset_rows", "N", "rows of calibration; one more for 32 is held out"});
    v(measure_rows, {"--measurement_rows", "N", "how many of them measuring takes; also -mr", "8"});
    v(sensitivity_tokens,
      {"--sensitivity_tokens", "N",
       "tokens on which measuring finds how much each linear counts; more is better",
       "256; on a card 1024"});
    v(length, {"-l,--length", "N", "tokens per row"});
    v(seed, {"--seed", "N", "chooses the rows, or what the model writes"});
    v.group("Machine");
    v(backend, {"--backend", "NAME", "where to compute: auto, cpu, ref or cuda[:N]"});
    v(device_memory,
      {"--device-memory", "SIZE",
       "memory of a card to use at most, such as 20GiB (no effect on a CPU)", "what is free"});
    v(threads, {"--threads", "N", "CPU threads", "physical cores"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
  }
};

}  // namespace bl
