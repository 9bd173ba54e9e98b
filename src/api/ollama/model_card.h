#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace bl::ollama {

// What Ollama's routes tell of a model.
struct ModelCard {
  std::string name;
  std::string digest;                  // 64 hexadecimal digits; equal for names of one model
  std::int64_t modified = 0;           // nanoseconds since 1970
  std::uint64_t bytes = 0;             // of the weights
  std::uint64_t device_bytes = 0;      // of the device's memory, where the model is loaded
  std::uint64_t host_bytes = 0;        // of the host's beside it
  std::string format = "safetensors";  // of the files; "gguf" is the other one
  std::string architecture;
  std::string parameters;          // how many, as "8.0B"; empty: not known
  std::string quantization;        // "F16"; empty: not known
  std::int64_t model_context = 0;  // tokens that the model was made for
  std::int64_t context = 0;        // tokens that fit here, where the model is loaded
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::string chat_template;
  bool calls_tools = false;
  bool thinks = false;
};

Json tags_entry(const ModelCard& card);  // an entry of /api/tags
// An entry of /api/ps. `expires`: when the model is unloaded unless requests come, in nanoseconds
// since 1970.
Json running_entry(const ModelCard& card, std::int64_t expires);
Json shown(const ModelCard& card);  // the answer of /api/show

}  // namespace bl::ollama
