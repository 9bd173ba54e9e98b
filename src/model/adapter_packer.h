#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/peft_adapter.h"
#include "nn/lora.h"
#include "ops/backend.h"

namespace bl {

// An adapter copied to host memory and already cut and padded for the model's linears, so that only
// packing by the backend is left. It no longer needs the adapter's files.
class PreparedAdapter {
 public:
  explicit PreparedAdapter(const PeftAdapter& adapter);

  // 32 hexadecimal digits that depend only on the weights and where they go, so they agree between
  // processes. Not safe against constructed collisions.
  const std::string& fingerprint() const { return fingerprint_; }
  // Bytes that pack() will take of the backend's memory.
  std::size_t bytes(Backend& backend) const;
  // Must not be called while a step runs.
  std::shared_ptr<const LoraAdapter> pack(Backend& backend) const;

 private:
  struct Part {
    std::int32_t linear = -1;
    std::int64_t first_column = 0;
    DenseMatrix up;  // B [rank, columns] for these columns, or a whole head
  };
  struct Module {
    DenseMatrix down;  // A [in, rank]
    std::vector<Part> parts;
    bool is_embedding = false;  // `down` is a table: [rows, rank], or [rows, hidden] if it is whole
    bool is_whole = false;      // replaces the model's own weights
    float scale = 0;
    bool has_down() const { return is_embedding || !is_whole; }
  };
  static Module whole_module(const LoraModule& from);

  std::vector<Module> modules_;
  std::string fingerprint_;
};

}  // namespace bl
