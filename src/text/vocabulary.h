#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// Tokens and their ids, both ways. Ids need not be dense; a token has one id, and an id that
// several tokens claim keeps the last one's text.
class Vocabulary {
 public:
  static constexpr int kMaxId = (1 << 24) - 1;  // more than any model has; bounds hostile files

  void reserve(std::size_t tokens);
  // Requires 0 <= id <= kMaxId. A token given again gets the new id.
  void add(std::string_view token, int id);

  int find(std::string_view token) const;  // -1 where there is none
  // The text of an id; data() is null where there is none.
  std::string_view token(int id) const;
  // One more than the highest id.
  int id_limit() const { return static_cast<int>(by_id_.size()); }
  // Number of different tokens.
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::uint32_t size = 0;
    std::int32_t id = -1;
  };
  struct Slot {
    std::uint32_t tag = 0;    // high half of the hash, so that most misses touch one cache line
    std::uint32_t entry = 0;  // index into entries_ plus one, 0 for a free slot
  };

  std::size_t slot_of(std::string_view token) const;
  void grow(std::size_t slots);
  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.begin, entry.size);
  }

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> by_id_;  // index into entries_, -1 for a gap
  std::vector<Slot> slots_;          // a power of two of them, open addressing
};

}  // namespace bl
