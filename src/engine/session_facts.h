#pragma once
#include <cstdint>
#include <string>

namespace bl {

class ModelSession;

// Describes a loaded model to rooms that do not know the room `model`.
struct SessionFacts {
  std::string architecture{};
  std::int64_t context = 0;        // tokens of the longest sequence
  std::int64_t train_context = 0;  // that the model's config gives
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t sequences = 0;   // that run at once
  std::int64_t parameters = 0;  // ModelSession::parameters()
  std::uint64_t weights = 0;    // bytes of the weights in memory
  std::uint64_t memory = 0;     // bytes of the device's memory that were planned in all
  std::uint64_t host = 0;       // bytes of host memory beside a device
  std::string cache_type{};     // "fp16"
};

SessionFacts facts_of(const ModelSession& session);

}  // namespace bl
