#include "convert/quantize_blocks.h"

#include "convert/output_quality.h"

namespace bl {

std::vector<double> quantize_blocks(const BlockLoop& loop, TwoPaths& paths) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < loop.loader.spec().order.size(); ++i) {
    if (loop.progress) loop.progress(i);
    ModelPart block = ModelPart::block(loop.loader, loop.backend, i);
    if (loop.folder.has_part(i)) {
      replay_block(block, loop.backend, paths, part_matrices(loop.folder.open_part(i)));
    } else {
      loop.folder.save_part(i,
                            quantize_block(block, loop.backend, paths, loop.rounder, loop.options));
    }
    errors.push_back(stream_error(loop.backend, paths));
  }
  return errors;
}

}  // namespace bl
