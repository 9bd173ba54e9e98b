#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// Maps tokens to ids and back. Ids need not be dense. A token has one id; if several tokens claim
// an id, it keeps the text of the last one.
class Vocabulary {
 public:
  static constexpr int kMaxId = (1 << 24) - 1;  // no model has more; it bounds hostile files

  void reserve(std::size_t tokens);
  // Adds a token; 0 ≤ id ≤ kMaxId. A token that is added again gets the new id.
  void add(std::string_view token, int id);

  int find(std::string_view token) const;  // -1 if there is no such token
  // The text of an id; its data() is null if there is no such id.
  std::string_view token(int id) const;
  // One more than the highest id.
  int id_limit() const { return static_cast<int>(by_id_.size()); }
  // The number of different tokens.
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::uint32_t size = 0;
    std::int32_t id = -1;
  };
  struct Slot {
    std::uint32_t tag = 0;    // high half of the hash, so that most misses touch one cache line
    std::uint32_t entry = 0;  // index into entries_ plus one; 0 marks a free slot
  };

  std::size_t slot_of(std::string_view token) const;
  void grow(std::size_t slots);
  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.begin, entry.size);
  }

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> by_id_;  // index into entries_; -1 marks a gap
  std::vector<Slot> slots_;          // open addressing; the size is a power of two
};

}  // namespace bl
