#pragma once
// Moves prefixes between the cache of a running engine and files. The caller's thread reads and
// writes the file; the engine's thread only copies pages, some at a time between two steps, so that
// a slow disk does not hold it up.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "cache/prefix_file.h"

namespace bl {

class EngineCore;

struct SavedPrefix {
  std::int64_t tokens = 0;  // whole pages
  std::uint64_t bytes = 0;  // of the file
};

// Runs a function on the engine's thread, waits for it, and throws what it throws.
using CallEngine = std::function<void(const std::function<void(EngineCore&)>&)>;

// Saves the whole pages of a text that the cache has. Throws kNotFound where it has none, kIo, and
// kUnsupported where pages cannot be moved.
SavedPrefix save_prefix_file(const CallEngine& call, PrefixText text,
                             const std::filesystem::path& file);

// Puts the pages of a file into the cache, where requests of the same salt find them; where `pin`
// is not empty, pins them under that name. Pages that the cache has already are neither read nor
// checked. Throws what PrefixReader throws, kInvalidArgument for a file of another model or kind of
// pages and for a name that is too long, kLimit where the cache has too little room. Pages read
// before an error stay in the cache.
SavedPrefix load_prefix_file(const CallEngine& call, const PageKind& kind,
                             const std::filesystem::path& file, const std::string& pin);

}  // namespace bl
