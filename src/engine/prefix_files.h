#pragma once
// Prefixes between the cache of a running engine and files. The caller's thread reads and writes
// the file; the engine's thread only moves pages, some at a time between two steps, so that a disk
// holds nobody up.

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

// Runs something on the engine's thread, and waits; throws what it throws.
using CallEngine = std::function<void(const std::function<void(EngineCore&)>&)>;

// Saves the whole pages that the cache has of a text. Throws kNotFound when it has none, kIo,
// kUnsupported.
SavedPrefix save_prefix_file(const CallEngine& call, PrefixText text,
                             const std::filesystem::path& file);

// Puts the pages of a file into the cache, where requests of the same salt find them; with a name
// for a pin, they stay. Pages that the cache has already are neither read nor checked. Throws as
// PrefixReader does, kInvalidArgument for a file of another model
// or kind of pages and for a name that is too long, kLimit when the cache has not the room. What
// was read before an error stays in the cache as if it had been computed.
SavedPrefix load_prefix_file(const CallEngine& call, const PageKind& kind,
                             const std::filesystem::path& file, const std::string& pin);

}  // namespace bl
