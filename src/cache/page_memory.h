#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/tensor.h"

namespace bl {

// Access to the bytes of pages for the tiers of a cache and for files. The owner alone knows what a
// page consists of; its bytes have the same meaning in every page.
//
// Moves run in the order in which they were requested, in order with the model's steps, and may
// still be in flight when a call returns.
class PageMemory {
 public:
  virtual ~PageMemory() = default;
  virtual std::size_t page_bytes() const = 0;
  // Copies page `from` to page `to`.
  virtual void copy_page(std::int32_t to, std::int32_t from) = 0;

  // Allocates host memory that moves at full speed (page-locked for a device); empty if there is
  // none.
  virtual Buffer allocate_host(std::size_t bytes) = 0;
  // `host` points to page_bytes() bytes of memory from allocate_host().
  virtual void write_page(std::byte* host, std::int32_t page) = 0;
  virtual void read_page(std::int32_t page, const std::byte* host) = 0;
  // Waits for all moves. Call it before the host itself reads or writes that memory.
  virtual void finish_moves() = 0;
};

}  // namespace bl
