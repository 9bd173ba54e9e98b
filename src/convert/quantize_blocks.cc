#include "convert/quantize_blocks.h"

#include <future>

#include "convert/output_quality.h"

namespace bl {
namespace {

// Saves a block while the next one is quantized, since a disk may take as long as that. At most one
// is on its way, and one that is goes to its end whatever happens.
class PartSaver {
 public:
  explicit PartSaver(const RateFolder& folder) : folder_(folder) {}

  void save(std::size_t part, std::vector<QuantizedLinear> linears, int unreached_experts) {
    finish();
    saving_ = std::async(std::launch::async,
                         [&folder = folder_, part, unreached_experts, own = std::move(linears)] {
                           folder.save_part(part, own, unreached_experts);
                         });
  }
  // Throws what saving has thrown.
  void finish() {
    if (saving_.valid()) saving_.get();
  }

 private:
  const RateFolder& folder_;
  std::future<void> saving_;
};

}  // namespace

std::vector<double> quantize_blocks(const BlockLoop& loop, TwoPaths& paths) {
  std::vector<double> errors;
  PartSaver saver(loop.folder);
  for (std::size_t i = 0; i < loop.loader.spec().order.size(); ++i) {
    if (loop.progress) loop.progress(i);
    ModelPart block = ModelPart::block(loop.loader, loop.backend, i);
    if (loop.folder.has_part(i)) {
      const SafetensorsFile part = loop.folder.open_part(i);
      replay_block(block, loop.backend, paths, part_matrices(part));
      paths.unreached_experts += part_unreached_experts(part);
    } else {
      const int before = paths.unreached_experts;
      std::vector<QuantizedLinear> linears =
          quantize_block(block, loop.backend, paths, loop.rounder, loop.options);
      saver.save(i, std::move(linears), paths.unreached_experts - before);
    }
    errors.push_back(stream_error(loop.backend, paths));
  }
  saver.finish();
  return errors;
}

}  // namespace bl
