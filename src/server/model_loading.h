#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/model_room.h"

namespace bl::server {

class ServedModel;

// What an explicit load may ask for in place of the server's own options; a zero or an empty text
// leaves the option as it is.
struct LoadSettings {
  std::int64_t context = 0;    // tokens of one request
  std::int64_t sequences = 0;  // requests computed at once
  std::string cache{};         // a type of KV cache, as --cache takes it
  double rope_scale = 0;
  double rope_alpha = 0;
  std::filesystem::path draft{};          // a draft model
  std::filesystem::path chat_template{};  // a Jinja file
};

struct LoadOrder {
  std::vector<std::string> names{};  // that the model answers to; the first is its own
  std::filesystem::path path{};
  LoadSettings settings{};
  ModelMemory memory{};  // that it may take; a zero: as much as there is
  // To be called with the bytes of weights loaded so far. Throws kCancelled where the load is to
  // end.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};
};

// How models are loaded. Both functions run on the registry's thread and throw Error.
struct LoadFunctions {
  // What the model will take. Empty: nothing is known, and nothing is reserved.
  std::function<ModelMemory(const LoadOrder&)> plan{};
  // Empty: this server loads no models.
  std::function<std::shared_ptr<ServedModel>(const LoadOrder&)> load{};
};

}  // namespace bl::server
