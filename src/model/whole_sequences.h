#pragma once
// Forward passes that keep nothing, for calibration and training.
//
// If every sequence of a step starts at position 0, the keys and values of a block are needed only
// while that block runs. One set of pages in scratch memory then serves all blocks in turn, and no
// cache is needed. The sequences may have any lengths and are packed without padding; each has its
// own pages.
//
//   WholeSequences whole = pack_whole(texts);
//   Arena scratch(backend.allocate(model.work_bytes(tokens, rows) +
//                                  block_kv_bytes(layouts, whole.pages)));
//   const auto layers = take_block_kv(scratch, layouts, whole.pages);
//   model.forward(ctx, whole.batch, layers);    // or block by block:
//   model.embed(ctx, whole.batch, x);           // then run_block() for each block, then logits()

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/step_batch.h"
#include "ops/kv_layout.h"
#include "tensor/arena.h"

namespace bl {

struct WholeSequences {
  StepBatch batch;         // logit_rows is empty; the caller adds the rows that it wants
  std::int64_t pages = 0;  // pages of all sequences together, numbered from 0
};

// Packs token ids into a step, one sequence after the other. The reach of a sequence is its length.
// No sequence may be empty.
WholeSequences pack_whole(std::span<const std::vector<std::int32_t>> ids);

// Returns how many bytes of an arena take_block_kv() takes: `pages` pages of the layer with the
// largest ones. `layers` comes from Model::kv_layouts() or, before loading, from
// ModelLoader::kv_layouts().
std::size_t block_kv_bytes(std::span<const KvLayout> layers, std::int64_t pages);

// Returns one view per layer. All views share the same memory, so each layer overwrites the keys
// and values of the layer before it: only for steps of whole sequences, which read nothing older.
std::vector<PagedKvView> take_block_kv(Arena& scratch, std::span<const KvLayout> layers,
                                       std::int64_t pages);

}  // namespace bl
