#pragma once
// Forward passes that keep nothing, for calibration and training.
//
// A sequence that is computed whole needs the keys and values of a block only while that block
// runs. So one block's pages, in scratch memory, serve all blocks in turn, and no cache is needed.
// Sequences of any lengths are packed without padding; each has pages of its own.
//
//   WholeSequences whole = pack_whole(texts);
//   Arena scratch(backend.allocate(model.work_bytes(tokens, rows) +
//                                  block_kv_bytes(layouts, whole.pages)));
//   const auto layers = take_block_kv(scratch, layouts, whole.pages);
//   model.forward(ctx, whole.batch, layers)     // all blocks; or, one at a time:
//   model.embed(ctx, whole.batch, x)            // then run_block() for each, then logits()

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/step_batch.h"
#include "ops/kv_layout.h"
#include "tensor/arena.h"

namespace bl {

struct WholeSequences {
  StepBatch batch;         // rows of logits are the caller's to add
  std::int64_t pages = 0;  // numbered from 0, sequence after sequence
};

// Each sequence from position 0 to its end, which is also its reach. None may be empty.
WholeSequences pack_whole(std::span<const std::vector<std::int32_t>> ids);

// Bytes of an arena that take_block_kv() takes: `pages` pages of the layer whose pages are largest.
// `layers` as Model::kv_layouts() or ModelLoader::kv_layouts() gives them.
std::size_t block_kv_bytes(std::span<const KvLayout> layers, std::int64_t pages);

// One view a layer, all of them over the same memory, so a layer overwrites what the one before it
// has left. Only for steps of whole sequences: nothing of an earlier step is there to be read.
std::vector<PagedKvView> take_block_kv(Arena& scratch, std::span<const KvLayout> layers,
                                       std::int64_t pages);

}  // namespace bl
