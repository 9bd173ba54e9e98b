#include "backend/cuda/layout/k_step_table.h"

namespace bl::cuda {

std::vector<std::byte> make_k_step_table(const std::vector<KBlock>& k_blocks, int k_steps,
                                         std::int64_t n_tile_bytes) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(k_step_table_bytes(k_steps)));
  auto* entries = reinterpret_cast<KStepEntry*>(bytes.data());
  auto* widths = reinterpret_cast<std::uint8_t*>(entries + k_step_entries(k_steps));
  for (const KBlock& k_block : k_blocks) {
    for (std::uint32_t u = 0; u < k_block.k_steps; ++u) {
      const std::uint32_t k_step = k_block.first_k_step + u;
      entries[k_step] = {k_block.offset + u * k_block.bits, k_block.group_scale, k_block.group,
                         k_block.bits};
      widths[k_step] = k_block.bits;
    }
  }
  for (int i = k_steps; i < k_step_entries(k_steps); ++i) {
    entries[i].offset = static_cast<std::uint32_t>(n_tile_bytes / 64);
  }
  return bytes;
}

}  // namespace bl::cuda
