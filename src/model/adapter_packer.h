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

// An adapter as copies on the host, cut and padded as the model's linears want it: what remains to
// be done is to hand it to the backend. Needs no file any more.
class PreparedAdapter {
 public:
  explicit PreparedAdapter(const PeftAdapter& adapter);

  // The same for the same weights at the same places, in whatever process: 32 hexadecimal digits.
  // Not made to withstand who constructs collisions.
  const std::string& fingerprint() const { return fingerprint_; }
  // Bytes that pack() will take of the backend's memory.
  std::size_t bytes(Backend& backend) const;
  // Not to be called while a step runs.
  std::shared_ptr<const LoraAdapter> pack(Backend& backend) const;

 private:
  struct Part {
    std::int32_t linear = -1;
    std::int64_t first_column = 0;
    DenseMatrix up;  // B [rank, columns] of these columns; a whole head
  };
  struct Module {
    DenseMatrix down;  // A [in, rank]
    std::vector<Part> parts;
    bool is_embedding = false;  // down holds its rows: [rows, rank], of a whole one [rows, hidden]
    bool is_whole = false;      // stands for the model's own
    float scale = 0;
    bool has_down() const { return is_embedding || !is_whole; }
  };
  static Module whole_module(const LoraModule& from);

  std::vector<Module> modules_;
  std::string fingerprint_;
};

}  // namespace bl
