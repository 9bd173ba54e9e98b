#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/tensor.h"

namespace bl {

// Where the bytes of pages are, and how they are moved: what the tiers of a cache ask of whoever
// owns its memory. What a page is made of is the owner's business; its bytes mean the same in every
// page.
//
// Moves happen in the order in which they were asked for, and in the order of the steps of the
// model, but may still be under way when a call returns.
class PageMemory {
 public:
  virtual ~PageMemory() = default;
  virtual std::size_t page_bytes() const = 0;
  // Makes page `to` what page `from` is.
  virtual void copy_page(std::int32_t to, std::int32_t from) = 0;

  // Host memory that pages move to and from as fast as the machine can; empty where there is none.
  virtual Buffer allocate_host(std::size_t bytes) = 0;
  // `host`: page_bytes() of such memory.
  virtual void write_page(std::byte* host, std::int32_t page) = 0;
  virtual void read_page(std::int32_t page, const std::byte* host) = 0;
  // Returns when all moves are over: before the host reads or writes that memory itself.
  virtual void finish_moves() = 0;
};

}  // namespace bl
