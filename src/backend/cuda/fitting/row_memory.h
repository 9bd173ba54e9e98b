#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "tensor/tensor.h"

namespace bl::cuda {

// Memory for rows that are kept from one pass to the next: the card's while there is room, then
// page-locked host memory. The latter is slow to allocate, so what comes back is handed out again
// for the same size.
class RowMemory {
 public:
  // Both return memory of so many bytes, or null where there is none.
  using Source = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;
  RowMemory(Source card, Source host);

  // How many bytes of the card's memory rows may take; 0 at first.
  void set_room(std::size_t bytes);
  // Throws kOutOfMemory where neither source has any.
  Buffer take(std::size_t bytes);
  // Bytes of host memory that were allocated, whether they are in use or wait for it.
  std::size_t host_bytes() const;

 private:
  struct Kept;
  Buffer take_on_card(std::size_t bytes);

  Source card_;
  Source host_;
  std::shared_ptr<Kept> kept_;  // outlives this while rows do
};

}  // namespace bl::cuda
