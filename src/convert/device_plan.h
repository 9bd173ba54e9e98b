#pragma once
#include <cstdint>
#include <span>

#include "convert/conversion_source.h"
#include "convert/measured_groups.h"
#include "convert/planned_model.h"

namespace bl {

// What decides how much of a card's memory a conversion takes.
struct DeviceSizes {
  std::span<const PlannedMatrix> linears;  // of the blocks
  std::int64_t hidden = 0;
  std::int64_t head_out = 0;                 // of the head, if it is quantized; else 0
  std::uint64_t block = 0;                   // bytes of the weights of the largest block
  std::uint64_t ends = 0;                    // bytes of embedding, final norm and head
  std::uint64_t scratch = 0;                 // bytes that a pass of the longest row takes
  std::int64_t row_tokens = 0;               // of the longest row
  std::int64_t group_slots = kLargestGroup;  // of the largest group; −1: all slots of an input
  bool sweeps = true;
};

// Bytes of the backend's own memory that measuring and quantizing take at most, beside rows that
// are kept there because there is room; 0 for backends that compute in host memory. A block is in
// memory with what rounds one of its linears.
std::uint64_t device_work_bytes(Backend& backend, const DeviceSizes& sizes);

// The sizes of a job. `linears` must outlive the result.
DeviceSizes device_sizes(const ConversionJob& job, const ModelLoader& loader,
                         std::span<const PlannedMatrix> linears);

// Tells the backend how much memory kept rows may take: what a job leaves of the free memory, or of
// `most` bytes (0: no limit). Throws kOutOfMemory where that is less than the job needs.
void plan_device(Backend& backend, const DeviceSizes& sizes, std::uint64_t most);

}  // namespace bl
