#pragma once
// What conversions to all formats have in common before the first block.

#include <filesystem>
#include <functional>
#include <string>

#include "base/sip_hash.h"
#include "convert/calibration.h"
#include "convert/quantize_block.h"
#include "model/model_files.h"

namespace bl {

// What a conversion to any format is given.
struct ConversionJob {
  Backend& backend;
  const ModelFiles& files;
  std::filesystem::path archs = {};  // folder of further architectures; empty: none
  const Calibration& calibration;
  std::uint64_t device_memory = 0;  // bytes of a card to use at most; 0: what is free
  std::filesystem::path work;       // the job's folder
  bool restart = false;             // whether the job in it is discarded
  bool rehearsed = false;           // whether it only shows what would be refused, without warnings
  QuantizeOptions quantize = {};
  // What identifies the source beside its options, such as names, sizes and times of files.
  std::string source = {};
  // Called with the phase ("measure", "quantize 4.0bpw"), and steps done and in all; may throw to
  // interrupt, which leaves a job that can be continued.
  std::function<void(const std::string& phase, std::int64_t done, std::int64_t total)> progress =
      {};
};

// How a conversion loads a model: every linear by itself. `archs`: ConversionJob::archs.
LoadOptions conversion_load_options(const std::filesystem::path& archs);

// Throws kUnsupported for a model that cannot be converted.
void check_model(const ModelLoader& loader);
// Throws that, and kInvalidArgument for a calibration without rows.
void check_conversion_source(const ModelLoader& loader, const Calibration& calibration);
// Reads all weights of the model. Throws kInvalidArgument for a tensor with a value that is not
// finite, or beyond binary16, which results hold.
void check_values(const ConversionJob& job, const ModelLoader& loader);

// Throws kUnsupported, naming the linear, where its loss is no finite number: activations
// overflowed.
void check_loss(const std::string& key, double loss);

// The backend's name without the number of a card: what results depend on beside a job's options.
std::string kind_of_device(const Backend& backend);

// Changes with every token, with every end of a row, and with what is held out.
Hash128 hash_of(const Calibration& calibration);

// Both paths of all rows at the entry of the first block; each row is a chunk.
TwoPaths start_paths(ModelLoader& loader, Backend& backend, const Calibration& calibration);

}  // namespace bl
