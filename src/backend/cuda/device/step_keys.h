#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace bl::cuda {

// Decides which steps have a captured graph, by their keys. A step is captured when its key comes
// for the second time, as long as there are fewer than `graphs` graphs. After that, a key that came
// within the last `turns` steps displaces the least recently used graph, but only if that graph has
// not been used for `turns` steps. More keys than graphs that take turns therefore do not displace
// each other in every step, since capturing takes longer than running a step plainly.
class StepKeys {
 public:
  // `graphs`: most graphs. `turns`: most keys without a graph that are remembered, and the number
  // of steps after which a graph counts as unused.
  explicit StepKeys(std::size_t graphs = 64, std::int64_t turns = 256)
      : graphs_(graphs), turns_(turns) {}

  enum class Way : std::uint8_t { kPlain, kRecord, kRepeat };
  struct Turn {
    Way way = Way::kPlain;
    std::optional<std::uint64_t> displaced{};  // with kRecord: the key whose graph must be freed
  };
  // Says how the next step, of this key, is to run.
  Turn next(std::uint64_t key);
  // To be called when the graph of `key` has been captured. Without this call, a capture that
  // failed takes no place, and the key may try again.
  void recorded(std::uint64_t key);
  void clear();

  std::size_t graphs() const { return last_use_.size(); }
  std::size_t remembered() const { return last_plain_.size(); }

 private:
  using Turns = std::map<std::uint64_t, std::int64_t>;  // key → number of its latest step
  static Turns::iterator oldest(Turns& turns);
  void remember(std::uint64_t key);

  std::size_t graphs_;
  std::int64_t turns_;
  std::int64_t now_ = 0;
  Turns last_use_;    // keys with a graph
  Turns last_plain_;  // keys without one
};

}  // namespace bl::cuda
